"""Scorers tried on one trajectory, or on its group: asked as ever, but nothing is kept and nothing is published."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass

from claw_r1.consumers.rewards.config import ScoredSlot
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.opinions import GaveUp, Opinion
from claw_r1.consumers.rewards.outcomes import flaw_of
from claw_r1.consumers.rewards.subjects.history import FetchedCalls
from claw_r1.consumers.rewards.subjects.subject import ATTEMPTS, Subject, Unjudgeable
from claw_r1.consumers.rewards.subjects.trajectories import TrajectoryFacts, by_call, group_subject, subjects_of
from claw_r1.eventlog.kafka.reader import FactLookup, read_topics
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Position
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import Event, GroupRecord, TrajectoryRecord
from claw_r1.schemas.keys import group_key, parts
from claw_r1.schemas.topics import CALLS, GROUPS, TRAJECTORIES, Topic


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial of one scorer on one subject."""

    scorer: str
    subject: str
    values: tuple[float | None, ...] = ()
    failed: str | None = None
    """A word, where it gave up."""
    detail: str = ""
    tokens: int = 0
    spread: float | None = None


def rows_of(settings: LogSettings, name: str) -> list[TrajectoryRecord]:
    """Rows of the trajectories that `name` means: TRAJECTORY or GROUP/TRAJECTORY, ids as they are."""

    def names(ids: tuple[str, ...]) -> bool:
        return name in (ids[-1], "/".join(ids))

    return [row for row in _latest(settings, TRAJECTORIES, names) if isinstance(row, TrajectoryRecord)]


def try_out(settings: LogSettings, slot: ScoredSlot, row: TrajectoryRecord) -> list[Trial]:
    """Tries the slot on each subject that the trajectory is, or on its group. Raises LogError, ConsumerError.

    Whether the trajectory is over does not matter here, nor what the slot's filters say.
    """
    judged: list[tuple[Subject, Judged]] = []
    trials: list[Trial] = []
    for subject in _subjects(settings, slot, row):
        try:
            judged.append((subject, subject.assemble()))
        except Unjudgeable as error:
            trials.append(Trial(slot.name, subject.label, failed=error.reason, detail=error.detail))
    if judged:
        with closing(slot.kind.open(slot.scorer)) as scorer:
            answers = scorer.judge([view for _, view in judged])
            trials += [_trial(slot, subject, answer) for (subject, _), answer in zip(judged, answers, strict=True)]
    return trials


def _trial(slot: ScoredSlot, subject: Subject, answer: "Future[Opinion]") -> Trial:
    try:
        opinion = answer.result()
    except GaveUp as error:
        return Trial(slot.name, subject.label, failed=error.reason, detail=error.detail, tokens=error.tokens)
    flaw = flaw_of(opinion, subject)
    if flaw is not None:
        return Trial(slot.name, subject.label, failed=flaw[0], detail=flaw[1], tokens=opinion.tokens)
    return Trial(slot.name, subject.label, opinion.values, None, opinion.detail, opinion.tokens, opinion.spread)


def _subjects(settings: LogSettings, slot: ScoredSlot, row: TrajectoryRecord) -> list[Subject]:
    scope = slot.scorer.scope
    groups = _latest(settings, GROUPS, lambda ids: ids == (row.group_id,))
    group = next((event for event in groups if isinstance(event, GroupRecord)), None)
    if scope != "group":
        return list(subjects_of(_facts(settings, slot, row, group), scope, over=True))
    rows = _latest(settings, TRAJECTORIES, lambda ids: ids[0] == row.group_id)
    members = sorted((each for each in rows if isinstance(each, TrajectoryRecord)), key=lambda each: each.trajectory_id)
    facts = [_facts(settings, slot, member, group) for member in members if member.status in ATTEMPTS]
    if group is None or not facts:
        return []
    return [group_subject(group, facts[0].partition, facts, pure=slot.scorer.pure)]


def _facts(
    settings: LogSettings, slot: ScoredSlot, row: TrajectoryRecord, group: GroupRecord | None
) -> TrajectoryFacts:
    partition = partition_of(group_key(row.group_id), settings.partitions)
    places = [Position(settings.catalogue().name(CALLS), partition, offset) for offset in row.offsets]
    with closing(FetchedCalls(FactLookup(settings), bytes_max=1 << 30)) as lookup:
        fetched = lookup.fetch(set(places))
    calls, flaw = by_call(row, [fetched[at] for at in places])
    return TrajectoryFacts(partition=partition, row=row, group=group, calls=calls, flaw=flaw, pure=slot.scorer.pure)


def _latest(settings: LogSettings, topic: Topic, belongs: Callable[[tuple[str, ...]], bool]) -> list[Event]:
    """The latest row of each key that belongs here; a group's key is its id."""

    def ids(key: bytes) -> tuple[str, ...]:
        return (key.decode("utf-8", "surrogatepass"),) if topic is GROUPS else parts(key)

    latest = {key: record for record in read_topics(settings, [topic]) if belongs(ids(key := record.key or b""))}
    return [record.event() for record in latest.values() if record.value is not None]
