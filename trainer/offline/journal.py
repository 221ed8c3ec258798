"""The run's own topics in a file: the records of `journal/journal.py` for a run without a log.

Delivery: a line is one transaction; a last one left incomplete by a crash is cut off. Fencing: a lock on the file,
refused to a second trainer.
"""

import base64
import errno
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from io import BufferedRandom
from pathlib import Path

from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.records import Outgoing, Position, Record
from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.trainer.journal.journal import Journal


class FileTransactions:
    """`TransactionalProducer` on a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BufferedRandom | None = None

    def open(self) -> None:
        """Raises SettingsInvalid when another trainer writes there."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SettingsInvalid(
                f"another trainer writes to {self._path}; give this run an out_dir of its own"
            ) from error
        whole = self._path.read_bytes().rfind(b"\n") + 1
        self._file.truncate(whole)

    def commit(self, items: Sequence[Outgoing]) -> list[Position]:
        """On disk when it returns. Raises LogError, and leaves nothing of the transaction."""
        assert self._file is not None, "open() comes first"
        line = json.dumps([[item.topic.name, base64.b64encode(item.value or b"").decode()] for item in items])
        whole = os.fstat(self._file.fileno()).st_size
        try:
            os.write(self._file.fileno(), line.encode() + b"\n")
            os.fsync(self._file.fileno())
            if os.fstat(self._file.fileno()).st_size != whole + len(line) + 1:
                raise OSError(errno.ENOSPC, "the disk took a part of a transaction")
        except OSError as error:
            os.ftruncate(self._file.fileno(), whole)
            raise LogError(f"{self._path}: {error}") from error
        return []

    def close(self) -> None:
        """Idempotent."""
        if self._file is not None:
            self._file.close()


def records(path: Path) -> Iterator[Record]:
    """Every whole transaction's records, in order."""
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True) if path.exists() else []):
        if line.endswith(b"\n"):
            for topic, value in json.loads(line):
                yield Record(topic, 0, number, 0, None, base64.b64decode(value))


def file_journal(path: Path, run_id: str) -> Journal:
    """The journal of one run."""
    return Journal(FileTransactions(path), lambda: records(path), run_id)
