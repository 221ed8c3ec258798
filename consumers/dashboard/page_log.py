"""The log as the dashboard needs it."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from claw_r1.eventlog.protocols import Log, Lookup
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import Topic


class PageLog(Log, Protocol):
    """`KafkaLog` or `MemoryLog`."""

    settings: LogSettings

    def lookup(self) -> Lookup: ...

    def committed_offsets(
        self, group_id: str, topics: Sequence[Topic], partitions: Iterable[int]
    ) -> dict[Place, int | None]: ...
