"""The kit for another engine that folds the facts (docs/outgrowing.md): `python -m tests.conformance.kit DIR` makes 50 folders of a history each, the same at every run.

`facts.jsonl`: the records of claw.calls and claw.rewards of one partition, in the order of the log: topic, partition, offset,
key, and value, the wire bytes in base64. Among them are facts that come twice, people's words that the pool passes by, and events
that mean nothing. `rows.jsonl`: what the pool holds then, of topics without prefix, as `claw verify`'s oracle makes it, which
shares nothing with the folds. Whatever order the facts of one topic and the other are met in, the rows are these.
"""

import argparse
import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import Event, FactPosition
from claw_r1.schemas.keys import group_key
from tests import facts, oracle

HISTORIES = 50
DRAWN = 300
History = Sequence[tuple[Event, FactPosition]]


def histories() -> list[History]:
    """Makes those of most kinds of facts among what hypothesis draws, always the same ones."""
    drawn: list[History] = []

    @settings(
        max_examples=DRAWN,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(facts.logs())
    def draw(history: History) -> None:
        drawn.append(history)

    draw()
    return sorted(drawn, key=lambda history: -len({type(fact) for fact, _ in history}))[:HISTORIES]


def write(folder: Path, history: History) -> tuple[int, int]:
    """Writes one history and its rows; how many there are of each."""
    folder.mkdir(parents=True)
    told = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "offset": at.offset,
            "key": group_key(fact.group_id).decode(),
            "value": base64.b64encode(encode(fact)).decode(),
        }
        for fact, at in history
    ]
    rows = [
        {"topic": topic, "key": key.decode(), "value": base64.b64encode(value).decode()}
        for (topic, key), value in sorted(oracle.pool_of(history).items())
    ]
    _write(folder / "facts.jsonl", told)
    _write(folder / "rows.jsonl", rows)
    return len(told), len(rows)


def _write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.conformance.kit", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write; it must not be there yet")
    folder = parser.parse_args(argv).folder
    if folder.exists():
        parser.error(f"{folder} is there already")
    counts = [write(folder / f"{number:02}", history) for number, history in enumerate(histories())]
    numbers = [sum(column) for column in zip(*counts, strict=True)]
    print(f"{len(counts)} histories, {numbers[0]} facts, {numbers[1]} rows in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
