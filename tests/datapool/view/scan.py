"""Filters and counts by a scan over decoded rows: the plain meaning of each field, to which the columns are held."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from claw_r1.datapool.feedback import HUMAN
from claw_r1.datapool.view.listing.columns import TASK_CHARACTERS
from claw_r1.datapool.view.listing.pool_filter import EVERYTHING, PoolFilter, score_bound
from claw_r1.datapool.view.listing.query import step_says
from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import GroupRecord, StepRecord, TrajectoryRecord
from claw_r1.schemas.keys import parts

Ids = tuple[str, ...]
Row = Any  # GroupRecord | TrajectoryRecord | StepRecord: what a field is asked of has it


@dataclass
class Scan:
    """The latest rows by their ids."""

    rows: dict[str, dict[Ids, Row]] = field(default_factory=lambda: {"groups": {}, "trajectories": {}, "steps": {}})

    def apply(self, topic: str, key: bytes, value: bytes | None) -> None:
        kind = topic.rpartition(".")[2]
        ids = (key.decode("utf-8", "surrogatepass"),) if kind == "groups" else parts(key)
        if value is None:
            self.rows[kind].pop(ids, None)
        else:
            self.rows[kind][ids] = decode(value)

    def forget(self, group_id: str) -> None:
        for rows in self.rows.values():
            for ids in [ids for ids in rows if ids[0] == group_id]:
                del rows[ids]

    def find(self, kind: str, asked: PoolFilter, after: Ids = (), limit: int | None = None) -> list[Row]:
        """Rows that meet the filter, in order of ids."""
        found = [
            row for ids, row in sorted(self.rows[kind].items()) if ids > after and self._meets(kind, ids, row, asked)
        ]
        return found[:limit]

    def stats(self, asked: PoolFilter = EVERYTHING) -> dict[str, Any]:
        """The same as `query.stats`."""
        groups, trajectories, steps = (self.find(kind, asked) for kind in ("groups", "trajectories", "steps"))
        return {
            "groups": _summary(groups),
            "trajectories": {**_summary(trajectories), "status": _counted(row.status for row in trajectories)},
            "steps": {
                "total": len(steps),
                "trainable": sum(step.trainable for step in steps),
                "curated": sum(step.curation is not None for step in steps),
                "prompt_tokens": sum(step.prompt_length for step in steps),
                "response_tokens": sum(step.response_length for step in steps),
                "channels": _counted(step.channel or "unknown" for step in steps),
                "not_trainable": _counted(reason for step in steps for reason in step.reasons),
            },
        }

    def _meets(self, kind: str, ids: Ids, row: Row, asked: PoolFilter) -> bool:
        reward = {"groups": "reward_mean", "trajectories": "return_total", "steps": "reward_total"}[kind]
        return (
            asked.group in (None, ids[0])
            and asked.trajectory in (None, *self._trajectories(ids, row))
            and asked.channel in (None, row.channel)
            and asked.agent in (None, *self._agents(ids, row))
            and asked.run in (None, row.run_id)
            and (asked.task is None or (row.task or "\0")[:TASK_CHARACTERS] == asked.task[:TASK_CHARACTERS])
            and asked.status in (None, *self._statuses(ids, row))
            and asked.finish in (None, *self._finishes(ids, row))
            and (asked.reason is None or asked.reason in row.reasons)
            and (asked.time is None or _changed_in(row, asked.time))
            and asked.ready in (None, self._ready(ids, row))
            and _within(getattr(row, reward), asked.reward_min, asked.reward_max)
            and _within(row.max_version, asked.version_min, None)
            and _within(row.min_version, None, asked.version_max)
            and (asked.text is None or _says(row, asked.text))
            and self._holds(ids, asked)
        )

    def _ready(self, ids: Ids, row: Row) -> bool | None:
        """A step is as ready as its trajectory."""
        of = self.rows["trajectories"].get(ids[:2]) if isinstance(row, StepRecord) else row
        return of.ready if of is not None else None

    def _trajectories(self, ids: Ids, row: Row) -> Iterator[str]:
        if not isinstance(row, GroupRecord):
            yield ids[1]
            return
        yield from (member.trajectory_id for member in row.members)
        if row.members_left_out:
            yield from (name for _, name in self._inside("trajectories", ids))

    def _statuses(self, ids: Ids, row: Row) -> Iterator[str]:
        places = self._members(ids, row) if isinstance(row, GroupRecord) else [ids]
        kind = "steps" if isinstance(row, StepRecord) else "trajectories"
        yield from (self.rows[kind][place].status for place in places)

    def _finishes(self, ids: Ids, row: Row) -> Iterator[str | None]:
        """A trajectory ends as its last call does."""
        if isinstance(row, StepRecord):
            yield row.finish_reason
        for place in self._members(ids, row) if isinstance(row, GroupRecord) else [ids][: 3 - len(ids)]:
            steps = [self.rows["steps"][step] for step in self._inside("steps", place)]
            if steps:
                yield max(steps, key=lambda step: (step.first_received_us, step.call_id)).finish_reason

    def _members(self, ids: Ids, row: GroupRecord) -> list[Ids]:
        places = ((*ids, member.trajectory_id) for member in row.members)
        return [place for place in places if place in self.rows["trajectories"]]

    def _agents(self, ids: Ids, row: Row) -> Iterator[str | None]:
        yield row.agent
        for member in row.members if isinstance(row, GroupRecord) else ():
            trajectory = self.rows["trajectories"].get((*ids, member.trajectory_id))
            yield trajectory.agent if trajectory else None

    def _holds(self, ids: Ids, asked: PoolFilter) -> bool:
        """Some step in it (a step: itself) passes and carries all tags; of tags alone, whatever carries them itself will do."""
        judged = asked.trainable is not None or bool(asked.score)
        judged = judged or (asked.quality_min, asked.quality_max) != (None, None)
        if not judged and not asked.tag:
            return True
        steps = [place for place in self._inside("steps", ids) if _passes(self.rows["steps"][place], asked)]
        others = (
            [*self._inside("trajectories", ids), *self._inside("groups", ids)] if len(ids) < 3 and not judged else []
        )
        return any(set(asked.tag) <= self._tags(place) for place in (*steps, *others))

    def _inside(self, kind: str, ids: Ids) -> list[Ids]:
        return [place for place in self.rows[kind] if place[: len(ids)] == ids]

    def _tags(self, ids: Ids) -> set[str]:
        """Its own, those of people, and those of what it is in."""
        levels = zip(("groups", "trajectories", "steps"), (ids[:1], ids[:2], ids[:3]), (1, 2, 3), strict=True)
        rows = [self.rows[kind].get(place) for kind, place, length in levels if length <= len(ids)]
        own = {tag for row in rows if row is not None for tag in row.tags}
        last = rows[-1]
        return own | set(last.curation.tags if isinstance(last, StepRecord) and last.curation else ())


def scorers_apart(rows: Iterable[TrajectoryRecord]) -> dict[Ids, float]:
    """By ids, of those that two scorers have judged: the distance between the highest and the lowest rank that they give."""
    slots: dict[tuple[str, str], list[tuple[float, Ids]]] = defaultdict(list)
    for row in rows:
        for slot in row.rewards:
            of_scorer = slot.step_index is None and not slot.source.startswith(HUMAN)
            if of_scorer and slot.value is not None and math.isfinite(slot.value):
                slots[slot.source, slot.name].append((slot.value, (row.group_id, row.trajectory_id)))
    ranks: dict[Ids, list[float]] = defaultdict(list)
    for values in slots.values():
        for value, place in values:
            below = sum(other < value for other, _ in values) + sum(other <= value for other, _ in values)
            ranks[place].append(below / 2 / len(values))
    return {place: max(each) - min(each) for place, each in ranks.items() if len(each) > 1}


def _passes(step: StepRecord, asked: PoolFilter) -> bool:
    quality, scores = (step.curation.quality, step.curation.scores) if step.curation else (None, {})
    return (
        asked.trainable in (None, step.trainable)
        and _within(quality, asked.quality_min, asked.quality_max)
        and all(_within(scores.get(bound.scorer), bound.low, bound.high) for bound in map(score_bound, asked.score))
    )


def _changed_in(row: Row, time: str) -> bool:
    at_us = row.first_received_us if isinstance(row, StepRecord) else row.last_progress_us
    return bool(at_us) and datetime.fromtimestamp(at_us / 1e6, UTC).isoformat().startswith(time)


def _says(row: Row, text: str) -> bool:
    if isinstance(row, StepRecord):
        return step_says(row, text)
    own = [row.trajectory_id, row.metadata] if isinstance(row, TrajectoryRecord) else []
    return text.lower() in "\0".join(filter(None, [*own, row.group_id, row.task, *row.tags])).lower()


def _within(value: float | None, low: float | None, high: float | None) -> bool:
    """Nothing asked, or a value within bounds; a missing value never is."""
    if low is None and high is None:
        return True
    return value is not None and (low is None or value >= low) and (high is None or value <= high)


def _summary(rows: list[Row]) -> dict[str, Any]:
    return {
        "total": len(rows),
        "ready": sum(row.ready for row in rows),
        "channels": _counted(row.channel or "unknown" for row in rows),
        "not_ready": _counted(reason for row in rows for reason in row.reasons),
    }


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
