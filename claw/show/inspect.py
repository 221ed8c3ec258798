"""`claw inspect`: one trajectory as the pool sees it, and its conversation as the facts have it. It writes nothing."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import orjson

from claw.errors import CannotRun
from claw.show.log import log_for_reading
from claw.show.rendering import as_plain
from datapool.batch.deltas import bodies
from datapool.batch.rewards import slot_text
from datapool.view.conversations import CallBodies, ConversationTurn, conversation
from eventlog.kafka.reader import FactLookup, read_topics
from eventlog.records import Position
from eventlog.settings import LogSettings
from schemas.events import CallCaptured, Event, StepRecord, TrajectoryRecord
from schemas.keys import is_tokens_key, parts
from schemas.topics import STEPS, TRAJECTORIES, Topic


@dataclass(frozen=True, slots=True)
class Inspected:
    """A trajectory, its steps in the trajectory's order, and the facts of those that have one."""

    trajectory: TrajectoryRecord
    steps: list[StepRecord]
    facts: list[CallCaptured]


def inspect(trajectory_id: str, group_id: str | None, *, prefix: str, as_json: bool) -> int:
    """Prints the trajectory; exit code 1 when the pool has none of that name."""
    with log_for_reading(prefix) as settings:
        inspected = find(settings, trajectory_id, group_id)
        if inspected is None:
            print(orjson.dumps({"found": False}).decode() if as_json else f"the pool has no trajectory {trajectory_id}")
            return 1
        print(orjson.dumps(as_json_object(inspected)).decode() if as_json else as_text(inspected))
    return 0


def find(settings: LogSettings, trajectory_id: str, group_id: str | None) -> Inspected | None:
    """Looks the trajectory up. Raises CannotRun when several groups have one of that name."""
    trajectory = _trajectory(settings, trajectory_id, group_id)
    if trajectory is None:
        return None
    steps = _steps(settings, trajectory)
    positions = [Position.of(step.position) for step in steps if step.position]
    with closing(FactLookup(settings)) as lookup:
        facts = lookup.get(positions)
    events = [facts[position].event() for position in positions]
    return Inspected(trajectory, steps, [event for event in events if isinstance(event, CallCaptured)])


def _trajectory(settings: LogSettings, trajectory_id: str, group_id: str | None) -> TrajectoryRecord | None:
    def belongs(key: bytes) -> bool:
        group, trajectory = parts(key)
        return trajectory == trajectory_id and group_id in (None, group)

    matches = [event for event in _latest(settings, TRAJECTORIES, belongs) if isinstance(event, TrajectoryRecord)]
    if len(matches) > 1:
        groups = ", ".join(trajectory.group_id for trajectory in matches)
        raise CannotRun(f"several groups have a trajectory {trajectory_id}: name one by --group ({groups})")
    return matches[0] if matches else None


def _steps(settings: LogSettings, trajectory: TrajectoryRecord) -> list[StepRecord]:
    place = (trajectory.group_id, trajectory.trajectory_id)
    events = _latest(settings, STEPS, lambda key: not is_tokens_key(key) and parts(key)[:2] == place)
    order = {call_id: number for number, call_id in enumerate(trajectory.calls)}
    steps = [event for event in events if isinstance(event, StepRecord)]
    return sorted(steps, key=lambda step: order.get(step.call_id, len(order)))


def _latest(settings: LogSettings, topic: Topic, belongs: Callable[[bytes], bool]) -> list[Event]:
    """The latest event of each key that belongs here; tombstones are none."""
    latest = {key: record for record in read_topics(settings, [topic]) if belongs(key := record.key or b"")}
    return [record.event() for record in latest.values() if record.value is not None]


def as_json_object(inspected: Inspected) -> dict[str, Any]:  # JSON
    return {
        "found": True,
        "trajectory": as_plain(inspected.trajectory),
        "steps": [as_plain(step) for step in inspected.steps],
        "conversation": conversation(_calls(inspected)),
        "calls": [as_plain(fact) for fact in inspected.facts],
    }


def as_text(inspected: Inspected) -> str:
    """The trajectory on a few lines: state, steps, conversation."""
    lines = [*_heading(inspected.trajectory), "", *map(_step_line, inspected.steps), ""]
    lines += [line for turn in conversation(_calls(inspected)) for line in _turn_lines(turn)]
    return "\n".join(lines)


def _heading(t: TrajectoryRecord) -> list[str]:
    readiness = "ready" if t.ready else f"not ready: {', '.join(t.reasons)}"
    returned = "no reward yet" if t.return_total is None else f"return {t.return_total:.3f}"
    return [
        f"trajectory {t.trajectory_id} of group {t.group_id} ({t.channel}{', run ' + t.run_id if t.run_id else ''})",
        f"  {t.status}, {readiness}, {returned}, {len(t.calls) + t.calls_left_out} calls, versions {t.min_version}..{t.max_version} of {t.policy_run_id}",
        *([f"  rewards {', '.join(map(slot_text, t.rewards))}"] if t.rewards else []),
    ]


def _step_line(step: StepRecord) -> str:
    versions = ",".join(f"{s.version}[{s.start}:{s.end}]" for s in step.spans) or "-"
    rewards = ", ".join(map(slot_text, step.rewards)) or "-"
    training = "trainable" if step.trainable else f"not trainable: {', '.join(step.reasons)}"
    where = (
        f"{step.position.topic}[{step.position.partition}]@{step.position.offset}" if step.position else "no call yet"
    )
    return f"  {step.call_id}  {step.prompt_length}+{step.response_length} tokens  versions {versions}  rewards {rewards}  {training}  {where}"


def _turn_lines(turn: ConversationTurn) -> list[str]:
    reasoning = [f"  reasoning  {turn['reasoning']}"] if turn["reasoning"] else []
    return [*reasoning, f"  {turn['role']:>9}  {turn['content']}"]


def _calls(inspected: Inspected) -> list[CallBodies]:
    requests = bodies({fact.call_id: fact for fact in inspected.facts})
    return [CallBodies.of(fact, requests.get(fact.call_id, b"")) for fact in inspected.facts]
