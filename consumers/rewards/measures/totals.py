"""The work of scorers so far, from the topics alone: verdicts, failures, cost, and how far each is behind. It writes
nothing.

Input: claw.rewards.verdicts and claw.rewards from the beginning, the offsets of each slot's group. Memory: one entry per scorer,
and an id per reward that was made from a verdict on another subject.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from claw_r1.consumers.rewards.config import group_name
from claw_r1.consumers.rewards.subjects.of_rows import topics_of
from claw_r1.eventlog.kafka.admin import begin_offsets, end_offsets
from claw_r1.eventlog.kafka.reader import committed_offsets, read_topics, stream_ranges
from claw_r1.eventlog.records import readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import RewardAssigned, VerdictKept
from claw_r1.schemas.topics import REWARDS, VERDICTS


@dataclass(slots=True)
class SlotTotals:
    """The totals of one slot, all versions and generations together."""

    scope: str = ""
    verdicts: set[tuple[str, int]] = field(default_factory=set)
    failed: set[tuple[str, int]] = field(default_factory=set)
    cached: set[str] = field(default_factory=set)
    generations: set[int] = field(default_factory=set)
    tokens: int = 0
    seconds: float = 0.0
    price: float | None = None

    def add(self, verdict: VerdictKept) -> None:
        """One more. Equal content of two partitions has two, of two times; a copy has the time of the first, and cost nothing
        (docs/rebuild.md)."""
        self.scope = verdict.scope
        self.generations.add(verdict.generation)
        subjects = self.verdicts if verdict.failed is None else self.failed
        if (own := (verdict.verdict_id, verdict.envelope.occurred_at_us)) in subjects:
            return
        subjects.add(own)
        self.tokens += verdict.tokens
        self.seconds += verdict.seconds
        if verdict.price is not None:
            self.price = (self.price or 0.0) + verdict.price


def totals(settings: LogSettings) -> dict[str, dict[str, Any]]:
    """`{scorer: {verdicts, failed, cached, lag_s, cost}}` by slot, sorted.

    failed: subjects; cached: rewards made from a verdict on another subject of equal content. lag_s: age of the oldest record
    that the live group has not worked on; null where it never committed. Raises BrokerUnreachable, TopicMissing.
    """
    slots: dict[str, SlotTotals] = {}
    for event in readable(read_topics(settings, [VERDICTS])):
        if isinstance(event, VerdictKept):
            slots.setdefault(f"{event.source}/{event.name}", SlotTotals()).add(event)
    for event in readable(read_topics(settings, [REWARDS])):
        if isinstance(event, RewardAssigned) and event.verdict is not None and event.verdict.cached:
            slots.setdefault(f"{event.source}/{event.name}", SlotTotals()).cached.add(event.envelope.event_id)
    return {name: _entry(settings, name, of_slot) for name, of_slot in sorted(slots.items())}


def _entry(settings: LogSettings, name: str, of_slot: SlotTotals) -> dict[str, Any]:
    return {
        "verdicts": len(of_slot.verdicts),
        "failed": len(of_slot.failed),
        "cached": len(of_slot.cached),
        "lag_s": lag_s(settings, name, of_slot.scope),
        "cost": {"tokens": of_slot.tokens, "seconds": of_slot.seconds, "price": of_slot.price},
        "scope": of_slot.scope,
        "generations": sorted(of_slot.generations),
    }


def lag_s(settings: LogSettings, name: str, scope: str) -> float | None:
    """Age of the oldest record that the slot's live group has not worked on, 0 where there is none."""
    topics = topics_of(scope)
    ends = end_offsets(settings, topics)
    committed = committed_offsets(settings, group_name(settings.prefix, name), topics, sorted({at for _, at in ends}))
    if all(offset is None for offset in committed.values()):
        return None
    begins = {place: at for topic in topics for place, at in begin_offsets(settings, [topic]).items()}
    oldest_ms: list[int] = []
    for place, end in ends.items():
        start = max(committed[place] or 0, begins[place])
        first = next(stream_ranges(settings, {place: (start, end)}), None)
        oldest_ms += [] if first is None else [first.timestamp_ms]
    return max([0.0, *(time.time() - at / 1000 for at in oldest_ms)])
