"""The list of outcomes in docs/pool.md."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "pool.md").read_text())


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_documented_outcome_is_shown_by_a_test_that_exists(path, name):
    """A test that was renamed takes its line of the list with it."""
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_the_list_is_not_empty():
    """The pattern that finds the names still finds them."""
    assert len(NAMED) > 15
