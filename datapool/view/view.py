"""The pool as a reader sees it: rows of three compacted topics, offered only when they fit together.

Input: claw.datapool.{steps,trajectories,groups}, read_committed, from the beginning. The topics are read independently,
so a group is offered only when its rows match the chain of digests; until then it is simply not there yet. Delivery: the
latest row per key; a replay is a restart. Steps and tokens lie in a temporary file (`store.py`), groups and trajectories
in memory, where `keep` and `forget` bound them, or in that file, too.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from claw_r1.datapool.errors import ViewFailed
from claw_r1.datapool.view.progress import ReadProgress, WatchedReader
from claw_r1.datapool.view.rows import KeepGroup, PoolRows
from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.protocols import Reader
from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import GroupRecord, StepRecord, TrajectoryRecord
from claw_r1.schemas.keys import group_key, trajectory_key
from claw_r1.schemas.topics import GROUPS, STEPS, TRAJECTORIES, Topic

T = TypeVar("T")
TOPICS = (STEPS, TRAJECTORIES, GROUPS)


class PoolView:
    """Follows the pool in a thread. All reads are snapshots and safe from any thread."""

    def __init__(
        self,
        settings: LogSettings,
        *,
        keep: KeepGroup | None = None,
        group: str | None = None,
        topics: Sequence[Topic] = TOPICS,
        listed: bool = False,
        open_reader: Callable[[], Reader] | None = None,
        heard: Callable[[str, bytes], None] = lambda _topic, _key: None,
    ) -> None:
        """keep: decides for each version of a group whether it is kept (default: all are); one that is once not kept is forgotten.

        What nobody will ask for need not be taken in. group: its rows alone. topics: without
        `STEPS` no group is whole, but `group_rows` and `trajectory_rows` of `ask` are there. listed: for the questions of
        `claw_r1.datapool.view.listing.pages`; groups and trajectories then lie on disk, too. heard: called in the follower's
        thread after each row that was taken in, with `Topic.name` and the row's key.
        """
        self._open_reader: Callable[[], Reader] = open_reader or (
            lambda: LogReader(settings, topics, wants=lambda _topic, key: _wants(group, key))
        )
        self._names = {settings.catalogue().name(topic): topic.name for topic in TOPICS}
        self._rows = PoolRows(keep, listed=listed)
        self._heard = heard
        self._lock = threading.Lock()
        self._follower: Follower | None = None
        self._reader: WatchedReader | None = None
        self.changes = 0
        """Rows taken in since the start: who has an answer of the same number need not ask again."""

    def start(self) -> None:
        """Start following. Raises BrokerUnreachable, TopicMissing."""
        self._reader = WatchedReader(self._open_reader())
        self._follower = Follower(self._reader, self._apply)
        self._follower.start()

    def wait_caught_up(self, timeout_s: float) -> None:
        """Block until everything that stood in the topics at the call is applied. Raises BrokerUnreachable, LogError."""
        assert self._follower is not None, "start() comes first"
        self._follower.wait_caught_up(timeout_s)

    def progress(self) -> ReadProgress:
        """Returns how far the view has read, by the last look at the ends of the partitions; the next poll takes
        another. Waits for nothing."""
        assert self._reader is not None, "start() comes first"
        self._reader.look()
        return ReadProgress(self.changes, self._reader.offsets, self._reader.ends)

    def groups(self) -> list[GroupRecord]:
        """Every whole group, ready or not, in order of group_id. Raises ViewFailed."""
        with self._lock:
            return self._live().groups()

    def members(self, record: GroupRecord) -> list[tuple[TrajectoryRecord, list[StepRecord]]] | None:
        """Members that are over, ready or not, with their captured steps, all of the moment of `record`, or None. Raises ViewFailed."""
        with self._lock:
            return self._live().members(record)

    def trajectories(self, record: GroupRecord) -> list[TrajectoryRecord] | None:
        """All members of a group, ready or not, all of the moment of `record`, or None. Raises ViewFailed."""
        with self._lock:
            return self._live().trajectories(record)

    def ask(self, question: Callable[[PoolRows], T]) -> T:
        """The answer to a question about the rows at one moment (`rows.py`, `query.py`, `why.py`); nothing is applied meanwhile.

        Raises ViewFailed, and whatever the question raises.
        """
        with self._lock:
            return question(self._live())

    def forget(self, group_id: str) -> None:
        """Drop the rows of a group and ignore whatever else comes for it: bounds memory once it is trained."""
        with self._lock:
            self._rows.forget(group_id)

    def stop(self) -> None:
        """Stop following. Idempotent."""
        if self._follower is not None:
            self._follower.stop()

    def _live(self) -> PoolRows:
        if self._follower is not None and self._follower.error is not None:
            raise ViewFailed(f"the view of the pool ended: {self._follower.error}") from self._follower.error
        return self._rows

    def _apply(self, record: Record) -> None:
        name, key = self._names[record.topic], record.key or b""
        with self._lock:
            self._rows.apply(name, key, record.value)
            self.changes += 1
        self._heard(name, key)


def _wants(group: str | None, key: bytes | None) -> bool:
    """Returns whether a row is taken in, by its key."""
    own = key or b""
    return group is None or own == group_key(group) or own.startswith(trajectory_key(group, ""))
