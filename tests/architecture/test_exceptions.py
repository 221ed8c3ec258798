"""Exceptions from the house's rules carry a reason: a silenced finding on its line, a patched name in the list beside this file."""

import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.tree import ROOMS, ROOT

SILENCED = re.compile(r"#\s*(noqa(:[A-Z0-9, ]+)?|type:\s*ignore(\[[a-z, -]+\])?)\s*$")
PATCHED = re.compile(r'monkeypatch\.setattr\(\s*("[^"]+"|[\w.\[\]]+,\s*[^,\s]+)')
PATCHES = Path(__file__).with_name("patches.toml")


def files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def comments_of(path: Path) -> list[str]:
    """All comments of a file that has one which silences; to look for these, most files need not be cut into tokens."""
    if not re.search(r"noqa|type:\s*ignore", path.read_text()):
        return []
    with path.open("rb") as source:
        return [token.string for token in tokenize.tokenize(source.readline) if token.type == tokenize.COMMENT]


def test_a_silenced_finding_says_why() -> None:
    """Behind each `noqa` and each `type: ignore` stands a comment of its own with the reason."""
    comments = {path: comments_of(path) for path in files(*ROOMS, "bench", "examples", "tests")}
    unreasoned = [
        f"{path.relative_to(ROOT)}: {text}"
        for path, texts in comments.items()
        for text in texts
        if SILENCED.search(text)
    ]
    assert unreasoned == []


def test_a_patched_name_stands_in_the_list_with_its_reason() -> None:
    """A test is handed what can be an argument: the list names what is patched instead, and nothing else."""
    patched: dict[str, set[str]] = {}
    for path in files("tests"):
        names = {re.sub(r'["\s]', "", name) for name in PATCHED.findall(path.read_text())}
        if names and path != Path(__file__):
            patched[path.relative_to(ROOT).as_posix()] = names
    listed = tomllib.loads(PATCHES.read_text())
    assert {path: set(names) for path, names in listed.items()} == patched
    assert all(reason for names in listed.values() for reason in names.values())
