"""The README's tables are the code's."""

import pytest

from claw_r1.claw.show.tables import README, rooms_table, topics_table, with_tables
from claw_r1.schemas.topics import TOPICS


def test_the_readme_is_up_to_date() -> None:
    """Writing the tables again changes nothing (`python -m claw_r1.claw.show.tables` brings them up to date)."""
    assert with_tables(README.read_text()) == README.read_text()


def test_every_topic_and_room_is_listed() -> None:
    """One row for each, below the two rows of the head."""
    assert len(topics_table().splitlines()) == len(TOPICS) + 2
    assert "`schemas/`" in rooms_table()


def test_a_readme_without_a_place_for_a_table_is_refused() -> None:
    """A marker that was deleted is noticed."""
    with pytest.raises(ValueError, match="no place"):
        with_tables("# nothing")
