"""A filter of the pool is told wherever a person looks for it."""

import re
from dataclasses import fields
from pathlib import Path

from claw_r1.datapool.view.listing.pool_filter import PoolFilter

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(each.name for each in fields(PoolFilter))


def test_the_page_lists_every_option_once() -> None:
    """As they are typed: `--ready/--not-ready` is one field, `--reward-min/-max` are two."""
    (listed,) = re.findall(r"Filters: `([^`]*)`", (ROOT / "docs/curation.md").read_text())
    options = re.sub(r"(--\w+)-min/-max", r"\1-min \1-max", re.sub(r"/--not-\w+", "", listed)).split()
    assert sorted(each.removeprefix("--").replace("-", "_") for each in options) == NAMES


def test_the_form_of_the_page_has_every_field() -> None:
    """By the names of `PoolFilter`: another one is refused by every answer."""
    script = (ROOT / "consumers/dashboard/static/parts/filters.js").read_text()
    assert sorted(re.findall(r"^  (\w+): \{ type: ", script, re.MULTILINE)) == NAMES
