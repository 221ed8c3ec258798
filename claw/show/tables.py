"""`python -m claw_r1.claw.show.tables`: writes the table of topics in CONTRIBUTING.md from the catalogue.

The table stands between `<!-- topics -->` and `<!-- /topics -->`.
"""

from claw_r1.claw.home import PROJECT
from claw_r1.schemas.topics import TOPICS

PAGE = PROJECT / "CONTRIBUTING.md"
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


def topics_table() -> str:
    """One row per topic of the catalogue, with the default prefix."""
    rows = [
        f"| `claw.{t.name}` | {t.key} | {t.policy} | {', '.join(f'`{r}`' for r in t.records) or 'original bytes'} | {', '.join(t.writers)} | {', '.join(t.readers)} |"
        for t in TOPICS
    ]
    return "\n".join(["| topic | key | policy | records | written by | read by |", "|---|---|---|---|---|---|", *rows])


def with_table(text: str, name: str = "topics", table: str = "") -> str:
    """The page's text with another table between the markers of that name. Raises ValueError when one is missing."""
    head, mark, rest = text.partition(f"<!-- {name} -->\n")
    _, end_mark, tail = rest.partition(f"<!-- /{name} -->")
    if not (mark and end_mark):
        raise ValueError(f"the page has no place for the table of {name}")
    return f"{head}{mark}{table or topics_table()}\n{end_mark}{tail}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
