"""The list of outcomes in docs/pool.md."""

import re
from pathlib import Path

import pytest

from claw_r1.datapool.fold import bounds
from claw_r1.gateway.paths import ID_CHARACTERS_MAX

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pool.md").read_text()
TABLE = PAGE.split("## Outcomes")[1].split("\n## ")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TABLE.splitlines()
    if line[:3] not in ("", "|--")
]
OUTCOMES = ROWS[1:]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
ASKED = (
    "a reward before its call",
    "two rewards in one slot",
    "a step after the completion",
    "a completion twice",
    "a completion without calls",
    "abandoned, then completed",
    "of an unknown trajectory",
    "a group declared late or twice",
    "more members than expected",
    "val and train mixed",
    "duplicate attempts",
    "evicted, then a late reward",
    "a broken chain",
    "a poisoned record",
    "a fold that raises on one event",
    "a reward, a curation or an eviction after the group was trained",
)
"""What a pool must have an answer to, however the page is rewritten."""


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_documented_outcome_is_shown_by_a_test_that_exists(path, name):
    """A test that was renamed takes its line of the list with it."""
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


@pytest.mark.parametrize("row", OUTCOMES, ids=lambda row: row[0][:40])
def test_every_outcome_says_what_happens_what_the_pool_says_and_who_shows_it(row):
    """A line without a test is a wish."""
    happens, said, shown = row
    assert happens
    assert said
    assert re.fullmatch(r"`tests/[\w/]+\.py::\w+`", shown)


CAPACITIES = {
    "members, ids of 36 bytes": (bounds.MEMBER_BYTES, 36, bounds.GROUP_MEMBERS_BYTES_MAX),
    "members, longest ids": (
        bounds.MEMBER_BYTES,
        ID_CHARACTERS_MAX * bounds.UTF8_BYTES_MAX,
        bounds.GROUP_MEMBERS_BYTES_MAX,
    ),
    "calls, ids of 36 bytes": (bounds.CALL_BYTES, 36, bounds.TRAJECTORY_CALLS_BYTES_MAX),
}


@pytest.mark.parametrize("list_of", CAPACITIES)
def test_the_page_and_the_bounds_say_how_many_a_record_holds(list_of):
    """As many as `bounds.within` lets in."""
    each, id_bytes, bytes_max = CAPACITIES[list_of]
    many = len(bounds.within(["i" * id_bytes] * 50_000, each, bytes_max))
    assert f"{many:,}" in PAGE
    assert f"{many:,}" in (ROOT / "datapool" / "fold" / "bounds.py").read_text()
    assert f"its id and {each} bytes" in PAGE


@pytest.mark.parametrize("case", ASKED)
def test_every_case_that_was_asked_for_has_its_line(case):
    """A case is one line, which says it in these words."""
    assert [row[0] for row in OUTCOMES if case in row[0]], case
