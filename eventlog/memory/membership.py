"""One member of a consumer group on a log in memory."""

from collections.abc import Collection, Mapping, Sequence

from claw_r1.eventlog.memory.readers import MemoryReader
from claw_r1.eventlog.memory.topics import MemoryTopics
from claw_r1.eventlog.protocols import OnRevoked
from claw_r1.eventlog.records import Place, Record
from claw_r1.schemas.topics import Topic


class MemoryMembership:
    """`KafkaMembership` on a MemoryLog. Partition numbers are shared out, so partition n of
    every topic stays together."""

    def __init__(
        self, log: MemoryTopics, topics: Sequence[Topic], group_id: str, *, on_revoked: OnRevoked, work_timeout_s: float
    ) -> None:
        self._log = log
        self._topics = topics
        self._group_id = group_id
        self._on_revoked = on_revoked
        self._work_timeout_s = work_timeout_s
        self._places = log.places(topics)
        self._group = log.group(group_id)
        self._member = next(log.member_numbers)
        self._readers: dict[int, MemoryReader] = {}

    def poll(self, timeout_s: float, records_max: int) -> list[Record]:
        with self._log.changed:
            self._rebalance()
            self._log.changed.wait_for(self._has_work, timeout_s)
            self._rebalance()
            records: list[Record] = []
            for reader in self._readers.values():
                records += reader.poll(0, records_max - len(records))
            return records

    def places(self) -> Collection[Place]:
        return [place for place in self._places if place[1] in self._readers]

    def positions(self) -> dict[Place, int]:
        return {place: at for reader in self._readers.values() for place, at in reader.positions().items()}

    def commit(self, offsets: Mapping[Place, int]) -> bool:
        with self._log.changed:
            held = self._group.held(self._member)
            own = {place: offset for place, offset in offsets.items() if place[1] in held}
            self._log.commit_offsets(self._group_id, own)
            return bool(own)

    def close(self) -> None:
        with self._log.changed:
            if self._readers:
                self._revoke(set(self._readers))
            self._group.leave(self._member)
            self._log.changed.notify_all()

    def _rebalance(self) -> None:
        if not self._group.renew(self._member, self._work_timeout_s) and self._readers:  # it was put out of the group
            self._revoke(set(self._readers))
        surplus = set(self._readers) - self._group.share(self._member)
        if surplus:
            self._revoke(surplus)
        for number in sorted(self._group.take(self._member)):
            committed = self._log.committed_offsets(self._group_id, self._topics, [number])
            start = {place: offset for place, offset in committed.items() if offset is not None}
            self._readers[number] = MemoryReader(self._log, self._topics, partitions=[number], start=start)

    def _revoke(self, numbers: set[int]) -> None:
        self._on_revoked([place for place in self._places if place[1] in numbers])
        for number in numbers:
            del self._readers[number]
        self._group.release(self._member, numbers)
        self._log.changed.notify_all()

    def _has_work(self) -> bool:
        return self._group.share(self._member) != set(self._readers) or any(
            not reader.at_end() for reader in self._readers.values()
        )
