"""The latest record of each key of compacted topics, in memory.

Invariant: the view equals the log's latest record per key at the positions reached; a tombstone means absent.
"""

import threading
from collections.abc import Callable, Sequence

from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.protocols import Reader
from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import Topic


class CompactedView:
    """Reads from the beginning in a thread of its own; reads of the view are safe from any thread.

    An exception of the log ends the view: `error` is set.
    """

    def __init__(
        self, settings: LogSettings, topics: Sequence[Topic], open_reader: Callable[[], Reader] | None = None
    ) -> None:
        """open_reader: of all the topics, from the beginning; None for that of the Kafka log."""
        self._open_reader: Callable[[], Reader] = open_reader or (lambda: LogReader(settings, topics))
        self._catalogue = settings.catalogue()
        self._latest: dict[str, dict[bytes, Record]] = {self._catalogue.name(topic): {} for topic in topics}
        self._lock = threading.Lock()
        self._follower: Follower | None = None

    @property
    def error(self) -> BaseException | None:
        """The error that ended the view, if any did."""
        return self._follower.error if self._follower else None

    def start(self) -> None:
        """Raises BrokerUnreachable, TopicMissing."""
        self._follower = Follower(self._open_reader(), self._apply)
        self._follower.start()

    def wait_caught_up(self, timeout_s: float) -> None:
        """Returns when the view holds everything committed before this call. Raises BrokerUnreachable or LogError."""
        if self._follower is None:
            raise RuntimeError("start() comes before wait_caught_up()")
        self._follower.wait_caught_up(timeout_s)

    def get(self, topic: Topic, key: bytes) -> Record | None:
        """The latest record of `key`, or None."""
        with self._lock:
            return self._latest[self._catalogue.name(topic)].get(key)

    def items(self, topic: Topic) -> list[tuple[bytes, Record]]:
        """A snapshot of a topic's keys and records."""
        with self._lock:
            return list(self._latest[self._catalogue.name(topic)].items())

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.stop()

    def _apply(self, record: Record) -> None:
        key = record.key or b""
        with self._lock:
            latest = self._latest[record.topic]
            latest.pop(key, None)
            if record.value is not None:
                latest[key] = record
