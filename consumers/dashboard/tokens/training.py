"""The training of a line of tokens by a batch, as its plan froze it; without a plan, the pool's state of each
call."""

from collections.abc import Sequence

from claw_r1.datapool.batch.rewards import slot_text
from claw_r1.datapool.batch.spec import parsed_spec
from claw_r1.datapool.runs import Planned, RunIndex
from claw_r1.datapool.view.left_out import why_left_out
from claw_r1.datapool.view.token_lines import SampledStretch
from claw_r1.schemas.json_values import JsonDict


def batches(index: RunIndex, group_id: str, trajectory_id: str) -> list[JsonDict]:
    """All that hold the group, each with what it froze of the trajectory."""
    return [
        {
            "run": batch.run_id,
            "batch": batch.sequence,
            "made_version": index.version_made(batch),
            "oldest_version": batch.oldest_version,
            "return": batch.reward.get(trajectory_id),
            "left_out": why_left_out(batch, trajectory_id),
        }
        for batch in index.planned(group_id)
    ]


def chosen_batch(index: RunIndex, group_id: str, run_id: str | None, sequence: int | None) -> Planned | None:
    """The batch of that name, else the last one that holds the group (of that run)."""
    candidates = [batch for batch in index.planned(group_id) if run_id in (None, batch.run_id)]
    return next((batch for batch in reversed(candidates) if sequence in (None, batch.sequence)), None)


def stretch_json(stretch: SampledStretch, batch: Planned | None) -> JsonDict:
    """One call's tokens: their versions and advantages, and which were trained."""
    step, curation = stretch.step, stretch.step.curation
    advantage, why_none = _advantage(stretch, batch)
    return {
        "c": step.call_id,
        "start": stretch.start,
        "end": stretch.end,
        "versions": [
            [span.run_id, span.version, stretch.start + span.start, min(stretch.start + span.end, stretch.end)]
            for span in stretch.call.spans
            if stretch.start + span.start < stretch.end
        ],
        "trained": _trained(stretch, batch),
        "untrained_why": _why(stretch, batch),
        "advantage": advantage,
        "advantage_why": why_none,
        "reward": step.reward_total,
        "rewards": [slot_text(slot) for slot in step.rewards],
        "quality": curation.quality if curation else None,
        "scores": curation.scores if curation else {},
        "tags": sorted({*step.tags, *(curation.tags if curation else ())}),
        "temperature": step.sampling.temperature if step.sampling else None,
        "finish_reason": step.finish_reason,
        "worker": step.worker_id,
    }


def _trained(stretch: SampledStretch, batch: Planned | None) -> list[tuple[int, int]]:
    """Ranges of the line that have a loss; without a batch, that may have one."""
    step = stretch.step
    if batch is None:
        return [(stretch.start, stretch.end)] if step.trainable else []
    if step.call_id not in batch.trained.get(step.trajectory_id, ()):
        return []
    if batch.oldest_version is None:
        return [(stretch.start, stretch.end)]
    young = [
        (stretch.start + span.start, min(stretch.start + span.end, stretch.end))
        for span in stretch.call.spans
        if span.run_id == batch.run_id and span.version >= batch.oldest_version
    ]
    return [(start, end) for start, end in young if start < end]


def _why(stretch: SampledStretch, batch: Planned | None) -> str | None:
    """Returns why none, or not all, of the response is trained."""
    step = stretch.step
    if batch is None:
        return None if step.trainable else f"not trainable: {', '.join(step.reasons)}"
    why = why_left_out(batch, step.trajectory_id, step.call_id)
    if why is not None or batch.oldest_version is None:
        return why
    return f"sampled by a version older than {batch.oldest_version}, or by another run"


def _advantage(stretch: SampledStretch, batch: Planned | None) -> tuple[float | None, str | None]:
    """Returns the advantage of each trained token of the call; else why it is not known."""
    step = stretch.step
    if batch is None:
        return None, "no batch has planned its group yet"
    if step.call_id not in batch.trained.get(step.trajectory_id, ()):
        return None, "it is not trained in this batch"
    spec = parsed_spec(batch.spec)
    if spec is not None and spec.estimator.critic:
        return None, f"{spec.algorithm}: the critic makes it while the batch is trained, and no event keeps it"
    own = batch.call_advantages.get(step.trajectory_id, {})
    return own.get(step.call_id, batch.advantage[step.trajectory_id]), None


def sampling_runs(stretches: Sequence[SampledStretch]) -> list[str]:
    """Runs whose model may have sampled this, the likeliest first."""
    steps = [stretch.step for stretch in reversed(stretches)]
    named = [run for step in steps for run in (step.policy_run_id, step.run_id)]
    return list(dict.fromkeys(run for run in named if run not in (None, "", "base", "mixed")))
