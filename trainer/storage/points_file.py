"""TensorBoard's file of one incarnation of a run.

Invariant: the points of a batch are in it whole or not at all, and a disk that was full for a moment costs no later ones. That is
why it is written here: tensorboard's own writer is a thread that ends with the first error, and says so at every later call.
Format: records of tensorboard's Event (tensorboard/compat/proto/event.proto).
"""

import os
import socket
import time
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter


class PointsFile:
    """Begins with the first batch; between two of them nothing is open. Belongs to one thread."""

    def __init__(self, folder: Path, purge_from: int) -> None:
        """purge_from: what earlier files of the folder hold of this batch and later ones is shown no more."""
        # TensorBoard reads files in the order of their names.
        self._path = folder / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._purge_from = purge_from

    def write(self, metrics: Mapping[str, float], batch: int) -> None:
        """Raises OSError: none of these points is there then."""
        points = [Summary.Value(tag=f"train/{name}", simple_value=value) for name, value in metrics.items()]
        events = [Event(step=batch, summary=Summary(value=[point])) for point in points]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab", buffering=0) as file:
            end = file.tell()
            rest = memoryview(_records(events if end else [*self._beginning(), *events]))
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                file.truncate(end)
                raise

    def _beginning(self) -> list[Event]:
        start = SessionLog(status=SessionLog.START)
        return [Event(file_version="brain.Event:2"), Event(step=self._purge_from, session_log=start)]


def _records(events: list[Event]) -> bytes:
    records = BytesIO()
    writer = RecordWriter(records)
    for event in events:
        event.wall_time = time.time()
        writer.write(event.SerializeToString())
    return records.getvalue()
