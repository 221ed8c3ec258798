"""The record of a call, captured or only spoken of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from claw_r1.consumers.verify.oracle import bounds
from claw_r1.consumers.verify.oracle.calls import Calls, chain_is_whole, first_received
from claw_r1.consumers.verify.oracle.conflicts import newest, of_kind
from claw_r1.consumers.verify.oracle.curations import curation_of
from claw_r1.consumers.verify.oracle.digests import sha, tokens_digest
from claw_r1.consumers.verify.oracle.rewards import step_total
from claw_r1.consumers.verify.oracle.soundness import PlacedFact
from claw_r1.consumers.verify.oracle.trainable import call_reasons
from claw_r1.schemas.events import (
    CallCaptured,
    Curation,
    FactPosition,
    RewardSlot,
    StepCurated,
    StepRecord,
    TrajectoryStarted,
)

StepFields = dict[str, Any]  # of a record, by name
KIND_TAGS = ("kind:main", "kind:side", "kind:subagent")


@dataclass(frozen=True, slots=True)
class CallFacts:
    """The facts of one call. own: rewards by its id; indexed: by its place among the counted calls."""

    group_id: str
    trajectory_id: str
    call_id: str
    facts: Sequence[PlacedFact]
    starts: Sequence[TrajectoryStarted]
    own: Sequence[RewardSlot]
    indexed: Sequence[RewardSlot]


def step_record(subject: CallFacts, calls: Calls) -> StepRecord:
    curation = curation_of(of_kind((fact for fact, _ in subject.facts), StepCurated))
    start = newest(subject.starts)
    fields: StepFields = {
        "group_id": subject.group_id,
        "trajectory_id": subject.trajectory_id,
        "call_id": subject.call_id,
        "rewards": (*subject.own, *subject.indexed),
        "reward_total": step_total(subject.own, subject.indexed),
        "curation": curation,
        "task": start.task if start else None,
    }
    reasons = _curation_reasons(curation)
    if subject.call_id not in calls:
        return StepRecord(**fields, reasons=tuple(sorted(reasons | {"no_call"})))
    call, at = calls[subject.call_id]
    reasons |= call_reasons(call)
    if not chain_is_whole(subject.call_id, calls):
        reasons.add("parent_missing")
    return StepRecord(
        **fields,
        **_attempts(subject.facts, at),
        **_tokens(call),
        **_policy(call),
        **_circumstances(call),
        **_purpose(call, calls),
        trainable=not reasons,
        reasons=tuple(sorted(reasons)),
    )


def _curation_reasons(curation: Curation | None) -> set[str]:
    checks = {
        "curated_out": curation is not None and curation.trainable is False,
        "too_many_judgements": curation is not None and len(curation.judgements) == bounds.JUDGEMENTS,
    }
    return {reason for reason, holds in checks.items() if holds}


def _attempts(facts: Sequence[PlacedFact], at: FactPosition) -> StepFields:
    (received_us,) = first_received(facts).values()
    attempts = {fact.attempt for fact in of_kind((fact for fact, _ in facts), CallCaptured)}
    return {"attempts": tuple(sorted(attempts)), "first_received_us": received_us, "position": at}


def _tokens(call: CallCaptured) -> StepFields:
    return {
        "attempt": call.attempt,
        "digest": tokens_digest(call),
        "prompt_id": call.prompt.full_digest,
        "response_id": sha(call.response_ids),
        "prompt_length": call.prompt.full_length,
        "response_length": len(call.response_ids) // 4,
        "base_call_id": call.prompt.base_call_id,
        "base_keep": call.prompt.keep,
        "base_digest": call.base_digest,
    }


def _policy(call: CallCaptured) -> StepFields:
    runs = {span.run_id for span in call.spans}
    return {
        "spans": call.spans,
        "min_version": min((span.version for span in call.spans), default=None),
        "max_version": max((span.version for span in call.spans), default=None),
        "policy_run_id": "mixed" if len(runs) > 1 else next(iter(runs), None),
        "sampling": call.sampling,
    }


def _circumstances(call: CallCaptured) -> StepFields:
    names = (
        *("finish_reason", "status", "model_id", "worker_id", "agent", "channel"),
        *("usage", "timings", "integrity"),
    )
    return {"run_id": call.envelope.run_id, **{name: getattr(call, name) for name in names}}


def _purpose(call: CallCaptured, calls: Calls) -> StepFields:
    """Decides the purpose of a call by its client's tag or field, else by whether it lacks the tools of others;
    a tag names its kind."""
    kinds = [tag.removeprefix("kind:") for tag in call.tags if tag in KIND_TAGS]
    if call.call_kind is not None and f"kind:{call.call_kind}" in KIND_TAGS:
        kinds.append(call.call_kind)
    tools = {other.has_tools for other, _ in calls.values()}
    kind = kinds[0] if kinds else "side" if tools == {True, False} and not call.has_tools else "main"
    others = tuple(tag for tag in call.tags if tag not in KIND_TAGS)
    return {
        "call_kind": kinds[0] if kinds else None,
        "has_tools": call.has_tools,
        "tags": others if kind == "main" else (*others, f"kind:{kind}"),
    }
