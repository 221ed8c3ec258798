"""`claw inspect`: one trajectory as the pool sees it, and its conversation as the facts have
it. It writes nothing."""

from contextlib import closing

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.pool.reading import pool_of, say_how_far
from claw_r1.consumers.pool.inspection import Inspected, as_json_object, inspected, steps_of, trajectory_of, turns
from claw_r1.datapool.batch.rewards import slot_text
from claw_r1.datapool.view.conversations import ConversationTurn
from claw_r1.eventlog.kafka.reader import FactLookup
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import StepRecord, TrajectoryRecord
from claw_r1.schemas.topics import STEPS, TRAJECTORIES


def inspect(name: str, group_id: str | None, *, prefix: str) -> Answer:
    """Looks it up; exit code 1 when the pool has none of that name. Raises PoolRefusal where several groups have one.

    name: TRAJECTORY or GROUP/TRAJECTORY.
    """
    with log_for_reading(prefix) as settings:
        say_how_far(settings)
        answer = _find(settings, name, group_id)
    if answer is None:
        return Answer({"found": False}, f"the pool has no trajectory {name}", 1)
    return Answer(as_json_object(answer), as_text(answer))


def _find(settings: LogSettings, name: str, group_id: str | None) -> Inspected | None:
    """Its group first: of the steps, which are most of the pool, only those of one group are taken in."""
    with pool_of(settings, group=group_id, topics=[TRAJECTORIES]) as pool:
        trajectory = pool.view.ask(lambda rows: trajectory_of(rows, name, group_id))
    if trajectory is None:
        return None
    with pool_of(settings, group=trajectory.group_id, topics=[STEPS]) as pool, closing(FactLookup(settings)) as facts:
        return inspected(trajectory, pool.view.ask(lambda rows: steps_of(rows, trajectory)), facts)


def as_text(answer: Inspected) -> str:
    """The trajectory on a few lines: state, steps, conversation."""
    lines = [*_heading(answer.trajectory), "", *map(_step_line, answer.steps), ""]
    lines += [line for turn in turns(answer) for line in _turn_lines(turn)]
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
