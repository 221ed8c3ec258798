"""What the documents point at exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PLACE = re.compile(r"\]\(([^)#\s:]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Every relative link of the page names a file or a folder of this repository."""
    links = [link for link in LINK.findall(page.read_text()) if not link.startswith(("http:", "https:", "mailto:"))]
    assert [link for link in links if not (page.parent / link).exists()] == []


def anchors(page: Path) -> set[str]:
    """The names that a renderer gives to the headings of a page: lower case, hyphens for spaces, no punctuation."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(page.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_a_heading_find_it(page: Path) -> None:
    """A heading that was renamed leaves no link behind that ends at the top of its page."""
    places = [(link, name) for link, name in PLACE.findall(page.read_text()) if not link or link.endswith(".md")]
    assert [place for place in places if place[1] not in anchors(page.parent / place[0] if place[0] else page)] == []


def test_every_page_is_reached_from_the_readme() -> None:
    """Whoever follows links from README.md comes to each page: what no link leads to is read by nobody."""
    reached, waiting = {ROOT / "README.md"}, [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        linked = {(page.parent / link).resolve() for link in LINK.findall(page.read_text())}
        new = {each for each in linked if each.suffix == ".md" and each.is_file()} - reached
        reached |= new
        waiting += new
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []
