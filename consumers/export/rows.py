"""A trajectory and its captured calls as rows of the two tables. Pure."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from claw_r1.consumers.export.choose import Chosen
from claw_r1.datapool.batch.masks import ID_FLAWS
from claw_r1.datapool.batch.sequences import call_tokens, rows
from claw_r1.datapool.delta_decoding import bodies, prompts
from claw_r1.datapool.view.conversations import CallBodies, messages, tools
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.codec import as_dict
from claw_r1.schemas.events import CallCaptured, RewardSlot, StepRecord

ExportedRow = dict[str, Any]  # a cell is whatever its column takes
REWARD_FIELDS = ("source", "name", "value", "revision", "occurred_at_us", "event_id", "verdict")
CallsById = Mapping[str, CallCaptured]
"""The facts of a trajectory's steps, by call_id."""


def step_rows(chosen: Chosen, calls: CallsById) -> Iterator[ExportedRow]:
    """One row for each captured call, in order."""
    whole, requests, standing = prompts(calls), bodies(calls), _standing(chosen)
    for step in chosen.steps:
        prompt, request = whole.get(step.call_id), requests.get(step.call_id, b"")
        yield _step_row(chosen, step, calls[step.call_id], prompt, request) | standing


def sequence_rows(chosen: Chosen, calls: CallsById) -> Iterator[ExportedRow]:
    """One row for each training sequence: paths of the token forest, each trained response that has ids once."""
    whole, policy = prompts(calls), chosen.record.policy_run_id or ""
    steps = {step.call_id: step for step in chosen.steps}
    offsets = {step.call_id: step.position.offset for step in chosen.steps if step.position is not None}
    source = next(step.position for step in chosen.steps if step.position is not None)
    trained = [
        call_tokens(
            calls[step.call_id],
            whole[step.call_id],
            policy,
            calls[step.call_id].sampling.temperature,
            chosen.advantages.get(step.call_id),
            chosen.oldest_version,
        )
        for step in chosen.steps
        if step.call_id in chosen.trained and step.call_id in whole and not ID_FLAWS.intersection(step.reasons)
    ]
    for number, row in enumerate(rows(trained, 0)):
        yield {
            "group_id": chosen.record.group_id,
            "trajectory_id": chosen.record.trajectory_id,
            "sequence": number,
            "call_ids": list(row.call_ids),
            **_whose(chosen, steps[row.call_ids[0]]),
            "sequence_ids": row.ids.tobytes(),
            "loss_mask": array("i", list(row.mask)).tobytes(),
            "logprobs": row.logprobs.tobytes(),
            "temperatures": row.temperatures.tobytes(),
            "versions": array("i", row.versions).tobytes(),
            "advantages": None if row.advantages is None else row.advantages.tobytes(),
            "policy_run_id": chosen.record.policy_run_id,
            **_returns(chosen),
            "source_topic": source.topic,
            "source_partition": source.partition,
            "source_offsets": [offsets[call_id] for call_id in row.call_ids],
        }


def _step_row(
    chosen: Chosen, step: StepRecord, call: CallCaptured, prompt: bytes | None, request: bytes
) -> ExportedRow:
    assert step.position is not None  # captured
    record, curation, texts = chosen.record, step.curation, CallBodies.of(call, request)
    trained = step.call_id in chosen.trained and prompt is not None
    return {
        "group_id": step.group_id,
        "trajectory_id": step.trajectory_id,
        "call_id": step.call_id,
        "attempt": step.attempt,
        "choice": call.choice,
        **_whose(chosen, step),
        "tags": list(dict.fromkeys((*chosen.group.tags, *record.tags, *step.tags))),
        "run_id": step.run_id,
        "model_id": step.model_id,
        "status": step.status,
        "finish_reason": step.finish_reason,
        "trainable": step.trainable,
        "reasons": list(step.reasons),
        "trained": trained,
        "advantage": chosen.advantages.get(step.call_id) if trained else None,
        "quality": curation.quality if curation else None,
        "scores": [{"scorer": scorer, "score": score} for scorer, score in curation.scores.items()] if curation else [],
        "curation_tags": list(curation.tags) if curation else [],
        "base_call_id": step.base_call_id,
        "base_keep": step.base_keep,
        "prompt_ids": prompt,
        "response_ids": _whole_items(call.response_ids),
        "response_logprobs": _whole_items(call.response_logprobs),
        "version_spans": [as_dict(span) for span in step.spans],
        "temperature": call.sampling.temperature,
        "messages": messages(texts),
        "tools": tools(texts),
        "rewards": _slots(step.rewards),
        "reward_total": step.reward_total,
        **_returns(chosen),
        "group_tags": list(chosen.group.tags),
        "group_progress_us": chosen.group.last_progress_us,
        "received_us": call.timings.received_us,
        "digest": step.digest,
        "source_topic": step.position.topic,
        "source_partition": step.position.partition,
        "source_offset": step.position.offset,
    }


def _whose(chosen: Chosen, step: StepRecord) -> ExportedRow:
    """Channel and agent as captured; the task of the trajectory, or else of its group."""
    own = chosen.record.task
    return {"channel": step.channel, "agent": step.agent, "task": chosen.group.task if own is None else own}


def _standing(chosen: Chosen) -> ExportedRow:
    """Says how a trajectory stands in the pool: without a spec, those go out too that no run would train."""
    record = chosen.record
    return {
        "trajectory_status": record.status,
        "trajectory_counted": any(member.trajectory_id == record.trajectory_id for member in chosen.group.members),
        "trajectory_ready": record.ready,
        "trajectory_reasons": list(record.reasons),
    }


def _returns(chosen: Chosen) -> ExportedRow:
    return {
        "reward": chosen.reward,
        "trajectory_rewards": _slots(slot for slot in chosen.record.rewards if slot.step_index is None),
        "outcome": chosen.record.outcome,
        "return_total": chosen.record.return_total,
        "group_reward_mean": chosen.group.reward_mean,
        "group_reward_std": chosen.group.reward_std,
    }


def _slots(slots: Iterable[RewardSlot]) -> list[ExportedRow]:
    """Returns the slots that have a value: one that was taken back or failed is as if nobody had spoken."""
    filled = (slot for slot in slots if slot.value is not None)
    return [{name: getattr(slot, name) for name in REWARD_FIELDS} for slot in filled]


def _whole_items(packed: bytes) -> bytes | None:
    """Numbers that are cut in the middle are no numbers; the step's reasons say `ids_malformed`."""
    return None if len(packed) % ITEM_BYTES else packed
