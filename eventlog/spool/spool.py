"""Records that the log did not take in time, kept on the local disk until it does.

Invariant: a record whose `append` returned is fsynced, and its segment is removed only after the log acknowledged every
record of it. So after any crash it reaches the log at least once, under the same event_id. Concurrent appends share one
fsync. Spools of processes that died are adopted: they are drained as if they were our own.
"""

import asyncio
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import structlog

from claw_r1.eventlog.errors import RecordTooLarge, SpoolFull
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.spool.directory import SpoolDirectory, adopt_orphans, create
from claw_r1.eventlog.spool.frames import Spooled, frame, read_frames
from claw_r1.eventlog.spool.segment import OpenSegment, Segment, segment_path
from claw_r1.runtime.files import sync
from claw_r1.schemas.topics import LARGEST_RECORD_BYTES

log = structlog.get_logger()

SEGMENT_BYTES = 16 << 20
BATCH_BYTES_MAX = 8 << 20
REFUSED_FILE = "refused.records"


@dataclass(frozen=True, slots=True)
class SpoolStats:
    """The content of a spool now (adopted segments included), and the records that went through it."""

    bytes: int
    records: int
    oldest_age_s: float
    spooled: int
    drained: int
    refused: int
    fsyncs: int


@dataclass(frozen=True, slots=True)
class _Pending:
    item: Outgoing
    content: bytes
    done: Future[None]


class Spool:
    """One process's spool below `root`. `append` from any thread or loop; segments are for one drainer."""

    def __init__(self, root: Path, name: str, *, bytes_max: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Takes a directory of its own and adopts orphans. Raises OSError when `root` cannot be used."""
        self._root = root
        self._bytes_max, self._segment_bytes = bytes_max, segment_bytes
        self._own = create(root, f"{quote(name, safe='')}-{uuid.uuid4().hex[:8]}")
        self._adopted: dict[Path, SpoolDirectory] = {}
        self._numbers = self._bytes = 0
        self._open: OpenSegment | None = None
        self._closed: deque[Segment] = deque()
        self._held: Counter[bytes] = Counter()
        self._spooled = self._drained = self._refused = self._fsyncs = 0
        self._files = threading.Lock()
        self._pending: list[_Pending] = []
        self._changed = threading.Condition()
        self._ending = self._limit_met = False
        self.adopt()
        self._writer = threading.Thread(target=self._serve, name="claw-spool", daemon=True)
        self._writer.start()

    async def append(self, item: Outgoing, *, behind: bool = False) -> None:
        """`submit`, awaited."""
        await asyncio.wrap_future(self.submit(item, behind=behind))

    def submit(self, item: Outgoing, *, behind: bool = False) -> Future[None]:
        """Done when the record is on the disk. With `behind` it enters the log after all earlier ones with its key.

        The future fails with SpoolFull, or RecordTooLarge for what the log would refuse.
        """
        pending = _Pending(item, frame(item, behind=behind), Future())
        if len(item.key or b"") + len(item.value or b"") > LARGEST_RECORD_BYTES:
            pending.done.set_exception(RecordTooLarge(f"a record for {item.topic.name} is too large"))
            return pending.done
        with self._changed:
            if self._ending:
                pending.done.set_exception(SpoolFull("the spool is closed"))
            else:
                self._pending.append(pending)
                self._changed.notify_all()
        return pending.done

    def holds(self, key: bytes) -> bool:
        """Returns whether a record with this key still has to reach the log."""
        return key in self._held

    @property
    def empty(self) -> bool:
        """Everything that was spooled is in the log."""
        return not self._held

    @property
    def full(self) -> bool:
        """The limit refused a record, and nothing was removed since."""
        return self._limit_met

    def stats(self) -> SpoolStats:
        """A snapshot for metrics, of no exact moment: a lock is held while the disk writes, and a disk that hangs must be seen."""
        oldest = [segment.oldest_s for segment in self._segments() if segment.oldest_s is not None]
        age_s = max(0.0, time.time() - min(oldest)) if oldest else 0.0
        records = self._held.total()
        counts = (self._spooled, self._drained, self._refused, self._fsyncs)
        return SpoolStats(self._bytes, records, age_s, *counts)

    def writable(self) -> bool:
        """Returns whether an append would succeed now: tries a small file."""
        probe = self._own.path / "probe"
        try:
            probe.write_bytes(bytes(4096))
            sync(self._own.path)
            probe.unlink()
        except OSError:
            return False
        return not self.full

    def adopt(self) -> int:
        """Takes over the spools of dead processes below the same root; how many records they hold."""
        return sum(map(self._adopt, adopt_orphans(self._root)))

    def next_segment(self, timeout_s: float) -> Segment | None:
        """The oldest segment, closed for writing; waits for one. Call `drained` when the log has it all."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending or self._closed or self._open, timeout_s)
        with self._files:
            if not self._closed:
                self._rotate()
            return self._closed[0] if self._closed else None

    def acknowledged(self, records: Sequence[Spooled]) -> None:
        """Notes that these records are in the log: later records with their keys need not wait any more."""
        with self._files:
            self._held.subtract(spooled.item.key or b"" for spooled in records)
            for spooled in records:
                if self._held[spooled.item.key or b""] <= 0:
                    del self._held[spooled.item.key or b""]
            self._drained += len(records)

    def refuse(self, spooled: Spooled) -> None:
        """The log will never take this one: it is set aside for a person, outside all segments. Raises OSError."""
        with (self._root / REFUSED_FILE).open("ab") as aside:
            aside.write(frame(spooled.item, behind=spooled.behind))
        self._refused += 1
        log.error("spooled_record_refused", topic=spooled.item.topic.name, kept=REFUSED_FILE)

    def remove(self, segment: Segment) -> None:
        """The log has acknowledged all of it."""
        with self._files:
            self._closed.remove(segment)
            self._bytes -= segment.bytes
            self._limit_met = False
            segment.remove()
            if not self._segments():
                self._held.clear()  # a record that could not be read back must not hold its group for ever
            directory = self._adopted.get(segment.path.parent)
            if directory is not None and not directory.segments():
                del self._adopted[directory.path]
                directory.remove()

    def close(self) -> None:
        """Ends the writer. What was not drained stays on the disk, for the next process to adopt. Idempotent."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._writer.join()
        with self._files:
            self._rotate()
            for directory in self._adopted.values():
                directory.release()
            self._adopted.clear()
        if self._own.segments():
            self._own.release()
        else:
            self._own.remove()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._ending)
                if not self._pending:
                    return
                batch = self._take_batch()
            with self._files:
                self._commit(batch)
            with self._changed:
                self._changed.notify_all()

    def _take_batch(self) -> list[_Pending]:
        """Takes waiting records, up to a size that is written in one go."""
        size = count = 0
        while count < len(self._pending) and (not count or size < BATCH_BYTES_MAX):
            size += len(self._pending[count].content)
            count += 1
        batch, self._pending = self._pending[:count], self._pending[count:]
        return batch

    def _commit(self, batch: Sequence[_Pending]) -> None:
        """One write and one fsync for all of them."""
        fitting = self._fitting(batch)
        if not fitting:
            return
        try:
            segment = self._writable_segment()
            self._bytes += segment.append([pending.content for pending in fitting], time.time())
        except (SpoolFull, OSError) as refused:
            log.error("spool_refused_by_disk", error=str(refused))
            for pending in fitting:
                pending.done.set_exception(SpoolFull(str(refused)))
            self._rotate()  # after a failed fsync nothing more is trusted to this file
            return
        self._fsyncs += 1
        self._spooled += len(fitting)
        self._held.update(pending.item.key or b"" for pending in fitting)
        for pending in fitting:
            pending.done.set_result(None)

    def _fitting(self, batch: Sequence[_Pending]) -> list[_Pending]:
        """Returns the records that the limit leaves room for; the others fail."""
        fitting: list[_Pending] = []
        size = self._bytes
        for pending in batch:
            if not pending.done.set_running_or_notify_cancel():
                continue  # who asked is gone, and was promised nothing
            if size + len(pending.content) > self._bytes_max:
                self._limit_met = True
                pending.done.set_exception(SpoolFull(f"the spool's limit of {self._bytes_max} bytes is reached"))
                continue
            size += len(pending.content)
            fitting.append(pending)
        return fitting

    def _writable_segment(self) -> OpenSegment:
        if self._open is not None and self._open.bytes >= self._segment_bytes:
            self._rotate()
        if self._open is None:
            self._numbers += 1  # a number that failed once is not tried again
            self._open = OpenSegment(segment_path(self._own.path, self._numbers - 1))
        return self._open

    def _rotate(self) -> None:
        segment, self._open = self._open, None
        if segment is not None:
            segment.close()
            if segment.records:
                self._closed.append(segment)

    def _adopt(self, directory: SpoolDirectory) -> int:
        held: Counter[bytes] = Counter()
        segments = [_read_through(path, held) for path in directory.segments()]
        records = sum(segment.records for segment in segments)
        if not records:
            directory.remove()
            return 0
        self._adopted[directory.path] = directory
        with self._files:
            self._held.update(held)
            self._closed.extendleft(reversed(segments))
            self._bytes += sum(segment.bytes for segment in segments)
        log.warning("spool_adopted", spool=directory.path.name, records=records)
        return records

    def _segments(self) -> list[Segment]:
        writing = self._open  # read once: `stats` holds no lock
        return [*self._closed, *([writing] if writing is not None else [])]


def _read_through(path: Path, held: Counter[bytes]) -> Segment:
    """A segment that somebody else wrote, with its keys counted."""
    records, oldest_s = 0, None
    for spooled in read_frames(path):
        held[spooled.item.key or b""] += 1
        records += 1
        oldest_s = oldest_s or spooled.at_s
    return Segment(path, records=records, size=path.stat().st_size, oldest_s=oldest_s)
