"""Commands of a page can be typed as they stand."""

from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
WHICH = "are those of the checkout's environment: type `. .venv/bin/activate`"


@pytest.mark.parametrize("name", ["black-box-agents.md", "own-environment.md", "environments.md"])
def test_a_page_for_authors_says_whose_commands_it_types(name: str) -> None:
    """`claw` and `python` alone, and one sentence on top of where they are; no command in another way."""
    page = (DOCS / name).read_text()
    assert WHICH in page.split("\n\n")[1]
    assert page.count(".venv/bin/") == 2
