"""Why a plan trains some parts of its groups and not others, as the plan itself tells.

Invariant: what is said follows from the plan and the spec in it, whatever the pool says today.
"""

import json

from pydantic import ValidationError

from datapool.batch.spec import BatchSpec
from datapool.view.runs import Planned


def why_left_out(batch: Planned, trajectory_id: str, call_id: str | None = None) -> str | None:
    """Why a batch that holds the group does not train the trajectory, or the call of it; None: it does."""
    if trajectory_id not in batch.reward:
        return "it was no ready member of its group then"
    trained, context = batch.trained[trajectory_id], batch.context[trajectory_id]
    if trained and (call_id is None or call_id in trained):
        return None
    if not trained and not context:
        return _not_chosen(batch, trajectory_id)
    if call_id is None or call_id in context:
        return ("it was" if call_id else "all its calls were") + f" context only, {_why_context(_spec(batch))}"
    return "it was not captured yet"


def _not_chosen(batch: Planned, trajectory_id: str) -> str:
    """A member that counts in its group's baseline alone."""
    total, spec = batch.reward[trajectory_id], _spec(batch)
    if spec is not None and spec.return_min is not None and total < spec.return_min:
        return f"its return {total:g} was below return_min {spec.return_min:g}"
    why = []
    if spec is not None and spec.asks_of_steps:
        why.append(f"no call of it was trainable then and what the spec asks of calls ({_asked_of_calls(spec)})")
    if spec is not None and spec.best_of is not None:
        why.append(f"its return {total:g} was not among the best {spec.best_of} of its group")
    return ", or ".join(why) or "the spec did not choose it"


def _why_context(spec: BatchSpec | None) -> str:
    """A plan keeps no scores and tags; where the spec asks for none, only one reason is left."""
    if spec is None:
        return "not trainable then or not what the spec asks of calls"
    return "not trainable then" + (
        f" or not what the spec asks of calls ({_asked_of_calls(spec)})" if spec.asks_of_steps else ""
    )


def _asked_of_calls(spec: BatchSpec) -> str:
    asked = spec.model_dump(
        include={"quality_min", "quality_missing", "scores", "tags", "tags_exclude"}, exclude_defaults=True
    )
    return ", ".join(f"{field}: {json.dumps(value)}" for field, value in asked.items())


def _spec(batch: Planned) -> BatchSpec | None:
    """None where another version of the code wrote it."""
    try:
        return BatchSpec.model_validate_json(batch.spec)
    except ValidationError:
        return None
