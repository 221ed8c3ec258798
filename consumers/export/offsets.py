"""The part of the history that an export is made of: [start, end) for each partition of the
fact topics. Offsets only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from claw_r1.consumers.export.errors import CannotExport
from claw_r1.eventlog.kafka.admin import begin_offsets, end_offsets
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import FACTS

Bound = str | int | Mapping[Place, int]
"""`beginning` (offset 0), `earliest` (what retention left) or `end`; one offset for every
partition; or one for each."""


@dataclass(frozen=True, slots=True)
class OffsetVector:
    """Ranges by full topic name and partition number; every topic has the same partitions."""

    ranges: Mapping[Place, tuple[int, int]]

    @property
    def partitions(self) -> int:
        return 1 + max((partition for _, partition in self.ranges), default=-1)

    @property
    def offsets(self) -> int:
        """Offsets in all ranges: an upper bound of the facts."""
        return sum(end - start for start, end in self.ranges.values())

    def of_partition(self, partition: int) -> dict[Place, tuple[int, int]]:
        """The ranges of one partition number."""
        return {place: ends for place, ends in self.ranges.items() if place[1] == partition}

    def to_json(self) -> dict[str, list[list[int]]]:
        """Topic -> [start, end] by partition number."""
        topics = sorted({topic for topic, _ in self.ranges})
        return {topic: [list(self.ranges[topic, p]) for p in range(self.partitions)] for topic in topics}

    @classmethod
    def from_json(cls, parsed: Mapping[str, Sequence[Sequence[int]]]) -> "OffsetVector":
        """The inverse of `to_json`. Raises ValueError or TypeError for anything else."""
        return cls(
            {
                (topic, partition): (int(start), int(end))
                for topic, ranges in parsed.items()
                for partition, (start, end) in enumerate(ranges)
            }
        )


def resolve(settings: LogSettings, start: Bound, end: Bound) -> OffsetVector:
    """Bounds as offsets, now. Raises CannotExport for a word or partition that there is not, BrokerUnreachable."""
    begins, ends = begin_offsets(settings, FACTS), end_offsets(settings, FACTS)
    words = {"beginning": dict.fromkeys(ends, 0), "earliest": begins, "end": ends}
    firsts, lasts = _bounds(start, words, ends), _bounds(end, words, ends)
    return OffsetVector({place: (min(firsts[place], lasts[place]), lasts[place]) for place in sorted(ends)})


def _bounds(bound: Bound, words: Mapping[str, Mapping[Place, int]], ends: Mapping[Place, int]) -> Mapping[Place, int]:
    if isinstance(bound, int):
        return {place: min(bound, end) for place, end in ends.items()}
    if isinstance(bound, str):
        if bound not in words:
            raise CannotExport(f"a bound is an offset, a file of offsets, or one of {', '.join(words)}, not {bound!r}")
        return words[bound]
    if bound.keys() != ends.keys():
        raise CannotExport("the offsets are of other topics or partitions than this log has")
    return bound


def check_there(settings: LogSettings, vector: OffsetVector) -> None:
    """Raises CannotExport that names the first missing range when retention cut the history, or the log is shorter."""
    begins, ends = begin_offsets(settings, FACTS), end_offsets(settings, FACTS)
    if vector.ranges.keys() != ends.keys():
        raise CannotExport("the manifest is of other topics or partitions than this log has")
    for (topic, partition), (start, end) in sorted(vector.ranges.items()):
        place = topic, partition
        if start < begins[place] and start < end:
            missing = f"[{start}, {min(begins[place], end)})"
            raise CannotExport(f"retention cut the history: {topic} partition {partition} no longer holds {missing}")
        if end > ends[place]:
            raise CannotExport(f"{topic} partition {partition} ends at {ends[place]}, the range goes up to {end}")
