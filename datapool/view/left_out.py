"""The reasons why a plan trains some parts of its groups and not others, by the plan itself.

Invariant: reasons follow from the plan and the spec in it, whatever the pool's present state.
"""

import json

from claw_r1.datapool.batch.masks import step_filters
from claw_r1.datapool.batch.spec import BatchSpec, parsed_spec
from claw_r1.datapool.runs import Planned


def why_left_out(batch: Planned, trajectory_id: str, call_id: str | None = None) -> str | None:
    """Returns why a batch that holds the group does not train the trajectory, or the call of it; None: it does."""
    if trajectory_id not in batch.reward:
        spec = parsed_spec(batch.spec)
        dropped = ", or its last reply was cut off (truncated: drop)" if spec and spec.truncated == "drop" else ""
        lacked = f", or it lacked a reward ({_required(spec)})" if spec and spec.rewards_required else ""
        return f"it was no ready member of its group then{dropped}{lacked}"
    trained, masked = batch.trained[trajectory_id], batch.masked[trajectory_id]
    if trained and (call_id is None or call_id in trained):
        return None
    if not trained and not masked:
        return _not_chosen(batch, trajectory_id)
    if call_id is None or call_id in masked:
        return ("it was" if call_id else "all its calls were") + f" masked, {_why_masked(batch)}"
    return "it was not captured yet"


def _not_chosen(batch: Planned, trajectory_id: str) -> str:
    """A member that counts in its group's baseline alone."""
    total, spec = batch.reward[trajectory_id], parsed_spec(batch.spec)
    if spec is not None and spec.return_min is not None and total < spec.return_min:
        return f"its return {total:g} was below return_min {spec.return_min:g}"
    reasons = []
    if spec is not None and spec.unfinished == "mask":
        reasons.append("it was abandoned (unfinished: mask)")
    if spec is not None and spec.truncated == "mask":
        reasons.append("its last reply was cut off (truncated: mask)")
    if spec is not None and step_filters(spec):
        reasons.append(f"no call of it was trainable then and passed the spec's filters ({_filters(spec)})")
    if spec is not None and spec.best_of is not None:
        reasons.append(f"its return {total:g} was not among the best {spec.best_of} of its group")
    return ", or ".join(reasons) or "the spec did not choose it"


def _why_masked(batch: Planned) -> str:
    """A plan keeps no scores and tags; where the spec filters no calls, only what the plan keeps is left."""
    spec, words = parsed_spec(batch.spec), ["not trainable then"]
    if batch.oldest_version is not None:
        words.append(f"older than version {batch.oldest_version}")
    if spec is None:
        words.append("kept out by the spec's filters")
    elif step_filters(spec):
        words.append(f"kept out by the spec's filters ({_filters(spec)})")
    return " or ".join(words)


def _required(spec: BatchSpec) -> str:
    return f"rewards_required: {', '.join(spec.rewards_required)}"


def _filters(spec: BatchSpec) -> str:
    return ", ".join(f"{field}: {json.dumps(value)}" for field, value in step_filters(spec).items())
