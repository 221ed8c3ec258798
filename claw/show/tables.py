"""`python -m claw_r1.claw.show.tables`: writes the README's tables of rooms and topics from the code.

A table stands between `<!-- name -->` and `<!-- /name -->`.
"""

import ast
from pathlib import Path

from claw_r1.claw.home import PROJECT
from claw_r1.schemas.topics import TOPICS

README = PROJECT / "README.md"
ROOMS = (
    "schemas",
    "runtime",
    "eventlog",
    "datapool",
    "gateway",
    "streams",
    "weights",
    "trainer",
    "rollout",
    "agentflow",
    "consumers",
    "claw",
)


def rooms_table() -> str:
    """One row per room: its charter is the first line of its package's docstring."""
    rows = [f"| [`{room}/`]({room}/) | {charter(PROJECT / room / '__init__.py')} |" for room in ROOMS]
    return "\n".join(["| room | what it is |", "|---|---|", *rows])


def charter(package: Path) -> str:
    """First line of a package's docstring. Raises ValueError when it has none."""
    docstring = ast.get_docstring(ast.parse(package.read_text()))
    if not docstring:
        raise ValueError(f"{package} says nothing about itself")
    return docstring.splitlines()[0]


def topics_table() -> str:
    """One row per topic of the catalogue, with the default prefix."""
    rows = [
        f"| `claw.{t.name}` | {t.key} | {t.policy} | {', '.join(f'`{r}`' for r in t.records) or 'original bytes'} | {', '.join(t.writers)} | {', '.join(t.readers)} |"
        for t in TOPICS
    ]
    return "\n".join(["| topic | key | policy | records | written by | read by |", "|---|---|---|---|---|---|", *rows])


def with_tables(text: str) -> str:
    """The README's text with each table replaced by the generated one. Raises ValueError when a marker is missing."""
    for name, table in (("rooms", rooms_table()), ("topics", topics_table())):
        head, mark, rest = text.partition(f"<!-- {name} -->\n")
        _, end_mark, tail = rest.partition(f"<!-- /{name} -->")
        if not (mark and end_mark):
            raise ValueError(f"the README has no place for the table of {name}")
        text = f"{head}{mark}{table}\n{end_mark}{tail}"
    return text


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
