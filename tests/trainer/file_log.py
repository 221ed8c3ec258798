"""The run's topics in a file, so that they outlive a process that kills itself. One line is one transaction."""

import base64
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from claw_r1.eventlog.errors import Fenced
from claw_r1.eventlog.records import Outgoing, Position, Record
from claw_r1.trainer.plan.journal import Journal


class FileTransactions:
    """`TransactionalProducer` on a file: a line is there whole or not at all; the last to open owns it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._owner = path.with_suffix(".owner")
        self._epoch = 0

    def open(self) -> None:
        self._epoch = 1 + (int(self._owner.read_text()) if self._owner.exists() else 0)
        self._owner.write_text(str(self._epoch))

    def commit(self, items: Sequence[Outgoing]) -> list[Position]:
        if int(self._owner.read_text()) != self._epoch:
            raise Fenced("another owner took over")
        line = json.dumps([[item.topic.name, base64.b64encode(item.value or b"").decode()] for item in items])
        with self._path.open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return []

    def close(self) -> None:
        """Nothing to end."""


def transactions(path: Path) -> list[list[Record]]:
    """What was committed, transaction by transaction."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [
        [Record(topic, 0, number, 0, None, base64.b64decode(value)) for topic, value in json.loads(line)]
        for number, line in enumerate(lines)
    ]


def file_journal(path: Path, run_id: str) -> Journal:
    def read() -> Iterator[Record]:
        for transaction in transactions(path):
            yield from transaction

    return Journal(FileTransactions(path), read, run_id)
