"""One trajectory as the pool sees it, and its conversation as the facts have it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.consumers.pool.event_json import as_plain
from claw_r1.datapool.delta_decoding import bodies
from claw_r1.datapool.view.conversations import CallBodies, ConversationTurn, conversation
from claw_r1.datapool.view.rows import PoolRows, as_step
from claw_r1.eventlog.protocols import Lookup
from claw_r1.eventlog.records import Position
from claw_r1.schemas.events import CallCaptured, StepRecord, TrajectoryRecord


@dataclass(frozen=True, slots=True)
class Inspected:
    """A trajectory, its steps in the trajectory's order, and the facts of those that have one."""

    trajectory: TrajectoryRecord
    steps: list[StepRecord]
    facts: list[CallCaptured]


def trajectory_of(rows: PoolRows, name: str, group_id: str | None) -> TrajectoryRecord | None:
    """The trajectory that `name` means: TRAJECTORY or GROUP/TRAJECTORY, ids as they are. Raises PoolRefusal when several do."""
    slashes = [at for at, character in enumerate(name) if character == "/"]
    own = [row for at in slashes for row in rows.trajectories_named(name[at + 1 :]) if row.group_id == name[:at]]
    matches = [row for row in (*rows.trajectories_named(name), *own) if group_id in (None, row.group_id)]
    if len(matches) > 1:
        groups = ", ".join(row.group_id for row in matches)
        raise PoolRefusal(f"several groups have a trajectory {name}: name one, GROUP/{name} or --group ({groups})")
    return matches[0] if matches else None


def steps_of(
    rows: PoolRows, trajectory: TrajectoryRecord, decoded: Mapping[str, StepRecord] | None = None
) -> list[StepRecord]:
    """Its steps in its order; those that were never called come last. decoded: by call_id, those that need no second look."""
    latest = decoded or {}
    order = {call_id: number for number, call_id in enumerate(trajectory.calls)}
    values = rows.store.steps(trajectory.group_id, trajectory.trajectory_id)
    steps = [latest[call_id] if call_id in latest else as_step(value) for call_id, value in values.items()]
    return sorted(steps, key=lambda step: (order.get(step.call_id, len(order)), step.call_id))


def inspected(trajectory: TrajectoryRecord, steps: list[StepRecord], facts: Lookup) -> Inspected:
    """The trajectory with the facts behind its steps. Raises HistoryCut where retention took some."""
    positions = [Position.of(step.position) for step in steps if step.position]
    records = facts.get(positions)
    events = [records[position].event() for position in positions]
    return Inspected(trajectory, steps, [event for event in events if isinstance(event, CallCaptured)])


def turns(answer: Inspected) -> list[ConversationTurn]:
    """Returns the conversation, each message once."""
    requests = bodies({fact.call_id: fact for fact in answer.facts})
    return conversation([CallBodies.of(fact, requests.get(fact.call_id, b"")) for fact in answer.facts])


def as_json_object(answer: Inspected) -> dict[str, Any]:  # JSON
    return {
        "found": True,
        "trajectory": as_plain(answer.trajectory),
        "steps": [as_plain(step) for step in answer.steps],
        "conversation": turns(answer),
        "calls": [as_plain(fact) for fact in answer.facts],
    }
