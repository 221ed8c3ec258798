"""What the documents point at exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Every relative link of the page names a file or a folder of this repository."""
    links = [link for link in LINK.findall(page.read_text()) if not link.startswith(("http:", "https:", "mailto:"))]
    assert [link for link in links if not (page.parent / link).exists()] == []
