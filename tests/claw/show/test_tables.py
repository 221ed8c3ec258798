"""The table of topics in CONTRIBUTING.md is the catalogue's, and every room stands in ARCHITECTURE.md."""

import re

import pytest

from claw_r1.claw.home import PROJECT
from claw_r1.claw.show.tables import PAGE, ROOMS, topics_table, with_table
from claw_r1.schemas.topics import TOPICS


def test_the_page_is_up_to_date() -> None:
    """Writing the table again changes nothing (`python -m claw_r1.claw.show.tables` brings it up to date)."""
    assert with_table(PAGE.read_text()) == PAGE.read_text()


def test_every_topic_is_listed() -> None:
    """The table has one row for each topic, below the two rows of the head."""
    assert len(topics_table().splitlines()) == len(TOPICS) + 2


def test_every_room_has_a_charter() -> None:
    """ARCHITECTURE.md's table of rooms has a row for each room, in the order from the ground up."""
    rows = re.findall(r"^\| `(\w+)/` \|", (PROJECT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert tuple(rows[: len(ROOMS)]) == ROOMS


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    """A marker that was deleted is noticed."""
    with pytest.raises(ValueError, match="no place"):
        with_table("# nothing")
