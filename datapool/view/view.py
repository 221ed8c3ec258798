"""The pool as a reader sees it: rows of three compacted topics, offered only when they fit together.

Input: claw.datapool.{steps,trajectories,groups}, read_committed, from the beginning. The topics are read independently,
so a group is offered only when its rows match the chain of digests; until then it is simply not there yet. Delivery: the
latest row per key; a replay is a restart. Rows lie in a file (`store.py`), a temporary one, or one with a name: then a view goes on
where one before it ended (`snapshot.py`).
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

import structlog

from claw_r1.datapool.errors import ViewFailed
from claw_r1.datapool.view.progress import ReadProgress, WatchedReader
from claw_r1.datapool.view.rows import KeepGroup, PoolRows
from claw_r1.datapool.view.snapshot import LISTED, ViewFile, view_path
from claw_r1.datapool.view.store import as_bytes
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.kafka.admin import end_offsets, topics_id
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.protocols import Reader
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.cloudevents import RUN_HEADER, Headers
from claw_r1.schemas.events import GroupRecord, StepRecord, TrajectoryRecord
from claw_r1.schemas.keys import group_key, trajectory_key
from claw_r1.schemas.topics import BATCHES, GROUPS, STEPS, TRAJECTORIES, Topic

log = structlog.get_logger()
T = TypeVar("T")
TOPICS = (STEPS, TRAJECTORIES, GROUPS)
SAVED_ROWS = 20_000
"""A view saves itself after so many rows, and after a quarter of all that it has: each is then written five
times at most."""
SAVED_EVERY_S = 86400.0
"""A view saves itself once a day in any case, so that another start finds no file that is too old."""
LOOK_EVERY_S = 3600.0
"""How often a view of groups only checks whether it has read all: a file records when it was complete."""
SAVED_AT_END_ROWS = 1_000
"""The fewest rows for which it is worth the time at the end."""


class PoolView:
    """Follows the pool in a thread. All reads are snapshots and safe from any thread."""

    def __init__(
        self,
        settings: LogSettings,
        *,
        keep: KeepGroup | None = None,
        group: str | None = None,
        run: str | None = None,
        topics: Sequence[Topic] = TOPICS,
        listed: bool = False,
        role: str | None = None,
        open_reader: Callable[[], Reader] | None = None,
        on_row: Callable[[str, bytes], None] = lambda _topic, _key: None,
    ) -> None:
        """keep: decides for each version of a group whether it is kept (default: all are); a group that is once not kept is forgotten.

        group: rows of this group alone. run: rows of groups that are known to be of another run are passed over,
        undecoded, as long as they are. topics: without `STEPS` no group is whole, but `group_rows` and `trajectory_rows` of `ask` are there.
        listed: for the questions of `claw_r1.datapool.view.listing.pages`. role: a name for the rows that are kept,
        where that is not all; without one such a view has no file. on_row: called in the follower's thread after each
        row that was read, with `Topic.name` and the row's key.
        """
        self._open_reader: Callable[[], Reader] = open_reader or (lambda: self._opened(settings, topics, group))
        self._names = {settings.catalogue().name(topic): topic.name for topic in TOPICS}
        self._empty = partial(PoolRows, keep, listed=listed, cache_bytes=int(settings.views_cache_mb * 1e6))
        self._rows = self._empty()
        self._on_row = on_row
        self._run = None if run is None else as_bytes(run)
        self._role = LISTED if listed and keep is None else role
        self._file: ViewFile | None = None
        self.start_offsets: dict[Place, int] = {}
        """The offsets that a file let reading begin at."""
        self._taken_in: dict[Place, int] = {}
        self._is_saved = False
        self._unsaved, self._has_erased, self._saved_s, self._save_at = 0, False, time.time(), SAVED_ROWS
        self._saved_to = 0
        self._lock = threading.Lock()
        self._follower: Follower | None = None
        self._reader: WatchedReader | None = None
        self.changes = 0
        """Rows taken in since the start: who has an answer of the same number need not ask again."""

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the view, if one did."""
        return None if self._follower is None else self._follower.error

    def start(self) -> None:
        """Start following. Raises BrokerUnreachable, TopicMissing."""
        try:
            self._reader = WatchedReader(self._open_reader())
        except BaseException:
            self._close_file()
            raise
        self._follower = Follower(self._reader, self._apply)
        self._follower.start()

    def _opened(self, settings: LogSettings, topics: Sequence[Topic], group: str | None) -> Reader:
        """A reader of rows that the view's file lacks; with a group, and no file yet, of its rows alone."""
        file = None
        if self._role is not None and settings.views_dir is not None:
            path = view_path(settings.views_dir, settings.catalogue(), self._role)
            file = ViewFile(path, topics_id(settings, (*TOPICS, BATCHES)), empty=self._empty)
        if group is not None and (file is None or not file.exists()):
            return LogReader(settings, topics, wants=partial(self._wants, group))
        if file is not None:
            self._rows, offsets = file.restored(partial(end_offsets, settings, TOPICS))
            self._file, self.start_offsets, self._save_at = file, dict(offsets), _worth_saving(self._rows)
            self._saved_to = sum(offsets.values())
            # Else some topics would be older than the file says.
            self._is_saved = all(topic in topics for topic in TOPICS)
        wants = None if self._run is None else partial(self._wants, None)
        return LogReader(settings, topics, start=self.start_offsets, wants=wants)

    def _wants(self, group: str | None, topic: str, key: bytes | None, headers: Headers) -> bool:
        """Returns whether a row is read, by its key and its headers. Rows of groups always are: they say that another
        run has a group."""
        own = key or b""
        if group is not None and own != group_key(group) and not own.startswith(trajectory_key(group, "")):
            return False
        return self._names[topic] == GROUPS.name or _may_be_of(self._run, headers)

    def wait_caught_up(self, timeout_s: float) -> None:
        """Block until everything that stood in the topics at the call is applied. Raises BrokerUnreachable, LogError."""
        assert self._follower is not None, "start() comes first"
        self._follower.wait_caught_up(timeout_s)
        self._caught_up()

    def progress(self) -> ReadProgress:
        """Returns how far the view has read, by the last look at the ends of the partitions; the next poll takes
        another. Waits for nothing."""
        assert self._reader is not None, "start() comes first"
        self._reader.look()
        progress = ReadProgress(self.changes, self._reader.offsets, self._reader.ends)
        if progress.caught_up:
            self._caught_up()
        return progress

    def _caught_up(self) -> None:
        with self._lock:
            if self._file is not None and self._is_saved:
                self._file.caught_up()

    def groups(self) -> list[GroupRecord]:
        """Every whole group, ready or not, in order of group_id. Raises ViewFailed."""
        if self._file is not None and time.time() - self._file.read_s > LOOK_EVERY_S:
            self.progress()
        with self._lock, self._file_in_order():
            return self._live().groups()

    def members(self, record: GroupRecord) -> list[tuple[TrajectoryRecord, list[StepRecord]]] | None:
        """Members that are over, ready or not, with their captured steps, all of the moment of `record`, or None. Raises ViewFailed."""
        with self._lock, self._file_in_order():
            return self._live().members(record)

    def trajectories(self, record: GroupRecord) -> list[TrajectoryRecord] | None:
        """All members of a group, ready or not, all of the moment of `record`, or None. Raises ViewFailed."""
        with self._lock, self._file_in_order():
            return self._live().trajectories(record)

    def ask(self, question: Callable[[PoolRows], T]) -> T:
        """The answer to a question about the rows at one moment (`rows.py`, `query.py`, `why.py`); nothing is applied meanwhile.

        Raises ViewFailed, and whatever the question raises.
        """
        with self._lock, self._file_in_order():
            return question(self._live())

    def forget(self, group_id: str) -> None:
        """Drop the rows of a group and ignore its later rows: bounds memory once it is trained. Raises ViewFailed."""
        with self._lock, self._file_in_order():
            self._rows.forget(group_id)

    def stop(self) -> None:
        """Stop following, and save what a next view need not read again; no question has an answer afterwards. Idempotent."""
        if self._follower is None or self._follower.stop():
            self._close_file()

    def _close_file(self) -> None:
        with self._lock:
            if self._file is None:
                return
            error = self.failure
            read = sum(self._read_to().values()) - self._saved_to
            if error is None and (read >= SAVED_AT_END_ROWS or self._has_erased):
                with suppress(sqlite3.Error):  # what was saved before is as it was
                    self._save(self._file)
            if isinstance(error, HistoryCut):
                self._file.discard()
            self._file.close(self._rows)
            self._file = None

    def _live(self) -> PoolRows:
        if self.failure is not None:
            raise ViewFailed(f"the view of the pool ended: {self.failure}") from self.failure
        return self._rows

    def _apply(self, record: Record) -> None:
        name, key = self._names[record.topic], record.key or b""
        with self._lock, self._file_in_order():
            if name == GROUPS.name and not _may_be_of(self._run, record.headers):
                # Not for good: an opening that comes late can give the group to this run. All of its rows are written again
                # then, and may have been read before this one, since each topic is read for itself: they stay.
                self._rows.apply(name, key, None)
                return
            self._rows.apply(name, key, record.value)
            self.changes += 1
            if self._file is not None:
                self._taken_in[record.topic, record.partition] = record.offset + 1
                self._unsaved += 1
                self._has_erased |= record.value is None
                if self._unsaved >= self._save_at or time.time() - self._saved_s > SAVED_EVERY_S:
                    self._save(self._file)
        self._on_row(name, key)

    def _save(self, file: ViewFile) -> None:
        """Keep all that was read so far. Where no file can be made, that costs the next start its time, and this view nothing. Raises
        sqlite3.Error where the file that rows stand in cannot be written."""
        offsets = self._read_to()
        self._unsaved, self._has_erased, self._saved_s, self._saved_to = 0, False, time.time(), sum(offsets.values())
        self._save_at = _worth_saving(self._rows)
        try:
            if self._is_saved:
                file.save(self._rows, offsets)
        except OSError as error:
            log.warning("view_not_saved", file=str(file.path), error=str(error))

    def _read_to(self) -> dict[Place, int]:
        """The offsets up to which each row was taken in or passed over."""
        passed = self.start_offsets if self._reader is None else self._reader.offsets
        offsets = {place: at for place, at in passed.items() if at}
        for place, at in self._taken_in.items():
            offsets[place] = max(at, offsets.get(place, 0))
        return offsets

    @contextmanager
    def _file_in_order(self) -> Iterator[None]:
        """A damaged file is left, and the next start reads the log. Raises ViewFailed."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if self._file is not None and type(error) is sqlite3.DatabaseError:  # not: a disk that is full
                self._file.discard()
            raise ViewFailed(f"the view's file cannot be used: {error}") from error


def _worth_saving(rows: PoolRows) -> int:
    """Rows to take in until the next save."""
    return max(SAVED_ROWS, rows.records.size // 4)


def _may_be_of(run: bytes | None, headers: Headers) -> bool:
    """Returns whether a row may be of the run: where it names none, it may."""
    return run is None or all(value == run for name, value in headers if name == RUN_HEADER)
