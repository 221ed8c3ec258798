"""Scorers tried on one trajectory, or on its group: asked as ever, but nothing is kept and nothing is published."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass

from claw_r1.consumers.rewards.app import row_subjects
from claw_r1.consumers.rewards.config import ScoredSlot
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.reward_events import flaw_of
from claw_r1.consumers.rewards.scorer import GaveUp, Opinion
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.of_rows import PlacedIds, TrajectoryRow
from claw_r1.consumers.rewards.subjects.subject import ATTEMPTS, Subject, Unjudgeable
from claw_r1.consumers.rewards.subjects.trajectories import group_subject, subjects_of
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import TrajectoryRecord
from claw_r1.schemas.keys import parts
from claw_r1.schemas.topics import TRAJECTORIES


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


def rows_of(settings: LogSettings, name: str) -> dict[PlacedIds, TrajectoryRow]:
    """Rows of the trajectories that `name` means: TRAJECTORY or GROUP/TRAJECTORY, ids as they are."""
    return _latest(settings, lambda ids: name in (ids[-1], "/".join(ids)))


def try_out(settings: LogSettings, slot: ScoredSlot, rows: Mapping[PlacedIds, TrajectoryRow]) -> list[Trial]:
    """Tries the slot on each subject that a trajectory is, or on its group. Raises LogError, ConsumerError.

    rows: of one trajectory. An open trajectory is tried, too, and the slot's filters are ignored.
    """
    judged: list[tuple[Subject, Judged]] = []
    trials: list[Trial] = []
    for subject in _subjects(settings, slot, rows):
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


def _subjects(settings: LogSettings, slot: ScoredSlot, rows: Mapping[PlacedIds, TrajectoryRow]) -> list[Subject]:
    scope, group_ids = slot.scorer.scope, {group_id for _, group_id, _ in rows}
    if scope == "group":
        members = _latest(settings, lambda ids: ids[0] in group_ids)
        rows = {ids: each for ids, each in members.items() if each.row.status in ATTEMPTS}
    with closing(row_subjects(KafkaLog(settings), slot, RewardsSettings())) as source:
        facts = source.facts_of({ids: rows[ids].row for ids in sorted(rows)}, rows)
    if scope != "group":
        return [subject for each in facts.values() for subject in subjects_of(each, scope, over=True)]
    beside = [*facts.values()]
    group = beside[0].group if beside else None
    return [] if group is None else [group_subject(group, beside[0].partition, beside, pure=slot.scorer.pure)]


def _latest(settings: LogSettings, belongs: Callable[[tuple[str, ...]], bool]) -> dict[PlacedIds, TrajectoryRow]:
    """The latest row of each trajectory whose ids belong here."""
    latest = {key: each for each in read_topics(settings, [TRAJECTORIES]) if belongs(parts(key := each.key or b""))}
    rows: dict[PlacedIds, TrajectoryRow] = {}
    for record in latest.values():
        row = record.event() if record.value is not None else None
        if isinstance(row, TrajectoryRecord):
            rows[record.partition, row.group_id, row.trajectory_id] = TrajectoryRow(row, "", record.timestamp_ms)
    return rows
