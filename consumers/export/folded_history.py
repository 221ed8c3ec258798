"""One partition's facts, read as a stream and folded into its groups at the offset vector, without their tokens.

Memory: the states of one partition's groups; records are not kept.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import structlog

from claw_r1.datapool.errors import UnusableFact
from claw_r1.datapool.fold.fold import flag, fold
from claw_r1.datapool.fold.state import GroupState
from claw_r1.datapool.fold.validation import PASSED_BY, check_place, usable
from claw_r1.datapool.personal_words import Feedback
from claw_r1.eventlog.kafka.reader import stream_ranges
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import FactPosition, OutputEdited, PreferenceGiven

log = structlog.get_logger()

PlaceRanges = Mapping[Place, tuple[int, int]]
FactsRead = Callable[[int], None]
"""Told the number of facts read since the last call."""


@dataclass(slots=True)
class FoldedHistory:
    """Groups by id, and how many records were no facts, by reason (they are dead letters of the streams, too)."""

    groups: dict[str, GroupState] = field(default_factory=dict)
    unreadable: Counter[str] = field(default_factory=Counter)
    feedback: Feedback = field(default_factory=Feedback)
    """Preferences and edits, which no fold takes."""
    spans: dict[str, dict[Place, tuple[int, int]]] = field(default_factory=dict)
    """The first and the last fact of each group, by their places."""
    decided: Collection[str] = ()
    """Groups whose facts are passed over, and counted as `after_its_part`."""


def fold_partition(
    settings: LogSettings, ranges: PlaceRanges, partitions: int, progress: FactsRead, folded: FoldedHistory
) -> None:
    """Folds facts of one partition onto the state. Raises HistoryCut, BrokerUnreachable."""
    for record in stream_ranges(settings, ranges):
        _take(folded, record, partitions)
        progress(1)


def _take(folded: FoldedHistory, record: Record, partitions: int) -> None:
    """Takes one record like the streams: poison changes nothing, a bug in the fold marks its subject."""
    try:
        event = record.event()
        if isinstance(event, PreferenceGiven | OutputEdited):
            folded.feedback.add(event)
        if type(event) in PASSED_BY:
            return
        fact = usable(event)
        check_place(fact, record.key, record.partition, partitions)
    except (UndecodableRecord, UnusableFact) as poison:
        folded.unreadable[poison.reason] += 1
        return
    if fact.group_id in folded.decided:
        folded.unreadable["after_its_part"] += 1
        return
    before = folded.groups.get(fact.group_id)
    spans, place = folded.spans.setdefault(fact.group_id, {}), (record.topic, record.partition)
    spans[place] = (spans.get(place, (record.offset, 0))[0], record.offset)
    position = FactPosition(topic=record.topic, partition=record.partition, offset=record.offset)
    try:
        folded.groups[fact.group_id] = fold(before, fact, position)
    except Exception as bug:  # a bug in a fold is not known by type
        log.error("export_fold_bug", position=str(record.position), exc_info=bug)
        folded.groups[fact.group_id] = flag(before, fact)
        folded.unreadable["fold_bug"] += 1
