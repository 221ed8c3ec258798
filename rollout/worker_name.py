"""The name of a worker, unique while it runs: two workers of one name would overwrite each other's reports.

On one host a lock decides, which ends with its process. Another host shows by its reports that it holds the name: a name is
taken while they go on. (Two that start on two hosts in the same second both get it.)
"""

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.protocols import Log
from claw_r1.eventlog.records import Record, readable
from claw_r1.rollout.errors import CannotStart
from claw_r1.schemas.events import WorkerReported
from claw_r1.schemas.topics import WORKERS

REPORTS_MISSED_MAX = 3
"""The number of missed reports after which a worker is gone."""
POLL_S = 0.2
CLOCKS_APART_MAX_S = 300.0
"""The most by which this host's clock and the broker's may differ."""


@dataclass(frozen=True, slots=True)
class WorkerName:
    """A name, and what holds it for as long as this process lives."""

    worker_id: str
    lock: IO[bytes]


def claim(
    worker_id: str, log: Log, scope: str, directory: Path | None = None, clock: Callable[[], float] = time.time
) -> WorkerName:
    """This worker's name from now on: the one that was chosen, else worker-<host>-<n> with the lowest free n.

    scope: the log, so that workers of two logs never meet. Raises CannotStart for a chosen name that somebody holds, and
    what the log raises. Waits for a sign of life of somebody who reported under the name some minutes ago.
    """
    place = directory or Path(tempfile.gettempdir()) / f"claw-workers-{os.getuid()}"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = [worker_id] if worker_id else (f"worker-{os.uname().nodename}-{number}" for number in count())
    for name in names:
        lock = (place / hashlib.sha256(f"{scope} {name}".encode()).hexdigest()).open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = "another worker on this host"
        else:
            rival = rival_of(name, log, clock)
            if rival is None:
                return WorkerName(name, lock)
            holder = f"the worker at {rival.url}"
        lock.close()
    raise CannotStart(f"--worker-id {worker_id} is held by {holder}; choose another, or none")


def rival_of(name: str, log: Log, clock: Callable[[], float] = time.time) -> WorkerReported | None:
    """Returns the report of a worker that uses this name and goes on doing so; None when nobody does within three of
    its intervals from now. The age of its last report does not shorten the wait: it is only as good as two clocks."""
    key = name.encode()
    partition = partition_of(key, len(log.end_offsets([WORKERS])))
    reader = log.reader([WORKERS], partitions=[partition])
    try:
        own = [record for record in reader.read_to_end() if record.key == key][-1:]
        last = _alive(own)
        if last is None:
            return None
        patience_s = last.report_interval_s * REPORTS_MISSED_MAX
        if clock() - own[0].timestamp_ms / 1000 > patience_s + CLOCKS_APART_MAX_S:
            return None
        ends_at = time.monotonic() + patience_s
        while time.monotonic() < ends_at:
            if rival := _alive([record for record in reader.poll(POLL_S) if record.key == key]):
                return rival
        return None
    finally:
        reader.close()


def _alive(records: list[Record]) -> WorkerReported | None:
    reports = [event for event in readable(records) if isinstance(event, WorkerReported)]
    return reports[-1] if reports and reports[-1].state != "dead" else None
