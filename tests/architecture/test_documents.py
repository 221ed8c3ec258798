"""The statements of the documents about the code can be found in the code."""

import re

import pytest

from tests.architecture.tree import ROOT

PATH = re.compile(r"`((?:[\w.-]+/)+[\w.{},-]*)`")
GLOSSARY_ROW = re.compile(r"^\| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", re.MULTILINE)
PLACE = re.compile(r"`([\w/]+\.(?:py|avsc|md))(?::(\w+))?`")
LINE_CHARACTERS_MAX = 120


def test_every_word_of_the_glossary_has_its_place_in_the_code() -> None:
    """The glossary has 35 to 60 words, and each word names a file that exists and a name that stands in it."""
    rows = [row for row in GLOSSARY_ROW.findall((ROOT / "docs/glossary.md").read_text()) if "`" in row[2]]
    places = {word: PLACE.search(place) for word, _, place in rows}
    assert 35 <= len(places) <= 60
    assert [word for word, place in places.items() if place is None or not _stands(place)] == []


@pytest.mark.parametrize("page", ["docs/changing.md", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_paths_of_a_page_exist(page: str) -> None:
    """Each path in backticks that begins with a folder of this repository leads somewhere; NAME is the reader's own."""
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    paths = [
        path for path in PATH.findall((ROOT / page).read_text()) if path.split("/")[0] in folders and "NAME" not in path
    ]
    assert [path for path in paths if not _exists(path)] == []


def test_the_changelog_has_every_release() -> None:
    """A release that can be read is one of which people are told: a merge once dropped all that the first had."""
    releases = {path.stem for path in (ROOT / "claw/show/releases").glob("*.json")}
    told = re.findall(r"^## (\S+) \(.*\)\n\n(?=\S)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {"0.1.0"} <= releases <= set(told)


def test_architecture_reads_in_lines() -> None:
    """No line of ARCHITECTURE.md is longer than 120 characters, tables aside."""
    lines = (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    assert [line for line in lines if len(line) > LINE_CHARACTERS_MAX and not line.startswith("|")] == []


def _stands(place: re.Match[str]) -> bool:
    path, name = place.groups()
    return (ROOT / path).is_file() and (
        name is None or re.search(rf"\b{name}\b", (ROOT / path).read_text()) is not None
    )


def _exists(path: str) -> bool:
    choices = re.search(r"\{([^}]*)\}", path)
    names = choices.group(1).split(",") if choices else [""]
    return all((ROOT / re.sub(r"\{[^}]*\}", name, path)).exists() for name in names)
