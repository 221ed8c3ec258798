"""The rows of a trajectory: its steps, and its own record."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from claw_r1.consumers.verify.oracle import bounds
from claw_r1.consumers.verify.oracle.calls import Calls, branches, counted, first_received, in_order, winning_calls
from claw_r1.consumers.verify.oracle.conflicts import (
    channel_of,
    content_of,
    newest,
    of_kind,
    revision_of,
    run_ids,
    sign_of_life,
)
from claw_r1.consumers.verify.oracle.digests import joined, sha
from claw_r1.consumers.verify.oracle.rewards import is_completion, winning_rewards
from claw_r1.consumers.verify.oracle.soundness import PlacedFact, PooledFact
from claw_r1.consumers.verify.oracle.steps import CallFacts, StepFields, step_record
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import (
    CallCaptured,
    CallFailed,
    RewardSlot,
    StepCurated,
    StepRecord,
    TrajectoryAbandoned,
    TrajectoryCompleted,
    TrajectoryEvicted,
    TrajectoryRecord,
    TrajectoryStarted,
)
from claw_r1.schemas.keys import step_key
from claw_r1.schemas.topics import STEPS

PoolBytes = dict[tuple[str, bytes], bytes]
"""(topic without prefix, key) -> canonical encoding."""
EndingFact = TrajectoryCompleted | TrajectoryAbandoned
RANK = {"abandoned": 1, "failed": 2, "completed": 3}


@dataclass(frozen=True, slots=True)
class ExpectedTrajectory:
    """rows: of steps. is_member: it has facts other than rewards and curations."""

    rows: PoolBytes
    record: TrajectoryRecord
    is_member: bool


def trajectory_rows(group_id: str, trajectory_id: str, placed: Sequence[PlacedFact]) -> ExpectedTrajectory:
    facts = [fact for fact, _ in placed]
    eviction = newest(of_kind(facts, TrajectoryEvicted))
    if eviction is not None:
        return ExpectedTrajectory({}, _stub(eviction), is_member=True)
    end = _ending(facts)
    rewards = winning_rewards(facts, end)
    calls = winning_calls(placed)
    order = in_order(calls, first_received(placed))
    steps = _steps((group_id, trajectory_id), placed, calls, order, rewards)
    rows: PoolBytes = {
        (STEPS.name, step_key(group_id, trajectory_id, call_id)): encode(step) for call_id, step in steps.items()
    }
    whole = _Trajectory(group_id, trajectory_id, facts, steps, order, rewards, branches(calls), end)
    return ExpectedTrajectory(rows, whole.record(), whole.is_member)


def _stub(eviction: TrajectoryEvicted) -> TrajectoryRecord:
    return TrajectoryRecord(
        group_id=eviction.group_id,
        trajectory_id=eviction.trajectory_id,
        status="evicted",
        status_event_id=eviction.envelope.event_id,
        status_us=eviction.envelope.occurred_at_us,
        reason=eviction.reason,
        ready=False,
        reasons=("evicted", "no_trainable_call"),
        digest=joined([]),
    )


def _ending(facts: Sequence[PooledFact]) -> EndingFact | None:
    """The one that counts, and nothing of any other does: of the highest revision, then of the highest status."""
    ends = [fact for fact in facts if isinstance(fact, EndingFact)]
    highest = max(((revision_of(end), RANK[_status(end)]) for end in ends), default=None)
    return newest([end for end in ends if (revision_of(end), RANK[_status(end)]) == highest])


def _status(end: EndingFact | None) -> str:
    return "open" if end is None else end.status if isinstance(end, TrajectoryCompleted) else "abandoned"


def _steps(
    ids: tuple[str, str],
    placed: Sequence[PlacedFact],
    calls: Calls,
    order: Sequence[str],
    rewards: Sequence[RewardSlot],
) -> dict[str, StepRecord]:
    """By call id: of calls that are captured, curated or rewarded."""
    about: dict[str, list[PlacedFact]] = defaultdict(list)
    for fact, at in placed:
        if isinstance(fact, CallCaptured | StepCurated):
            about[fact.call_id].append((fact, at))
    starts = of_kind((fact for fact, _ in placed), TrajectoryStarted)
    places = {call_id: place for place, call_id in enumerate(counted(order))}
    slots: dict[str | int | None, list[RewardSlot]] = defaultdict(list)
    for slot in rewards:
        slots[slot.step_index if slot.call_id is None else slot.call_id].append(slot)
    names = about.keys() | {slot.call_id for slot in rewards if slot.call_id}
    return {
        call_id: step_record(
            CallFacts(
                *ids,
                call_id,
                about[call_id],
                starts,
                slots[call_id],
                slots[places[call_id]] if call_id in places else [],
            ),
            calls,
        )
        for call_id in sorted(names)
    }


@dataclass(frozen=True, slots=True)
class _Trajectory:
    """A trajectory that was not evicted; `order`: its captured calls."""

    group_id: str
    trajectory_id: str
    facts: Sequence[PooledFact]
    steps: Mapping[str, StepRecord]
    order: Sequence[str]
    rewards: Sequence[RewardSlot]
    branches: int
    end: EndingFact | None

    @property
    def is_member(self) -> bool:
        kinds = (CallCaptured, CallFailed, TrajectoryStarted, EndingFact)
        return any(isinstance(fact, kinds) for fact in self.facts)

    def record(self) -> TrajectoryRecord:
        fields = self._ending() | self._calls() | self._returns() | self._versions() | self._origin()
        reasons = self._reasons(fields["trainable_calls"], fields["calls_left_out"])
        return TrajectoryRecord(
            group_id=self.group_id,
            trajectory_id=self.trajectory_id,
            ready=not reasons,
            reasons=tuple(sorted(reasons)),
            digest=joined([(call_id, sha(encode(step))) for call_id, step in self.steps.items()]),
            **fields,
        )

    def _ending(self) -> StepFields:
        end = self.end
        return {
            "status": _status(end),
            "status_event_id": end.envelope.event_id if end else "",
            "status_us": end.envelope.occurred_at_us if end else 0,
            "status_revision": revision_of(end) if end else 0,
            "reason": getattr(end, "reason", ""),
            "calls_expected": getattr(end, "calls", None),
            "rewards_expected": getattr(end, "rewards", None),
        }

    def _calls(self) -> StepFields:
        fitting = self.order[: bounds.room(self.order, bounds.CALLS_BYTES, bounds.BYTES_PER_CALL)]
        failures = {f"{fact.call_id}#{fact.attempt}" for fact in of_kind(self.facts, CallFailed)}
        return {
            "calls": tuple(fitting),
            "offsets": tuple(
                place.offset for call_id in fitting if (place := self.steps[call_id].position) is not None
            ),
            "calls_left_out": len(self.order) - len(fitting),
            "branches": self.branches,
            "failed_calls": tuple(sorted(failures)[: bounds.FAILURES]),
            "trainable_calls": sum(self.steps[call_id].trainable for call_id in self.order),
        }

    def _returns(self) -> StepFields:
        own = [slot for slot in self.rewards if slot.call_id is None]
        outcomes = [slot.value for slot in own if slot.step_index is None and slot.value is not None]
        outcome = math.fsum(outcomes) if outcomes else None
        totals = [self.steps[call_id].reward_total for call_id in self.order]
        parts = [part for part in (*totals, outcome) if part is not None]
        return {
            "rewards": tuple(own),
            "outcome": outcome,
            "return_total": math.fsum(parts) if parts else None,
        }

    def _versions(self) -> StepFields:
        steps = [self.steps[call_id] for call_id in self.order]
        runs = {step.policy_run_id for step in steps} - {None}
        return {
            "min_version": min((step.min_version for step in steps if step.min_version is not None), default=None),
            "max_version": max((step.max_version for step in steps if step.max_version is not None), default=None),
            "policy_run_id": "mixed" if len(runs) > 1 else next(iter(runs), None),
        }

    def _origin(self) -> StepFields:
        start = newest(of_kind(self.facts, TrajectoryStarted))
        agents = [agent for fact in self.facts if (agent := getattr(fact, "agent", None)) is not None]
        progress_us, progress_id = sign_of_life(self.facts)
        return {
            "channel": channel_of(self.facts),
            "agent": min(agents, default=None),
            **content_of(start),
            "registered_event_id": start.envelope.event_id if start else "",
            "registered_us": start.envelope.occurred_at_us if start else 0,
            "registered_revision": start.revision if start else 0,
            **run_ids(start, self.facts, "registered"),
            "last_progress_event_id": progress_id,
            "last_progress_us": progress_us,
        }

    def _reasons(self, trainable_calls: int, calls_left_out: int) -> set[str]:
        end: Any = self.end  # an abandonment counts nothing
        status, calls = _status(end), len(counted(self.order))
        assigned = sum(not is_completion(slot) for slot in self._filled())
        calls_expected, rewards_expected = getattr(end, "calls", None), getattr(end, "rewards", None)
        outcomes = [slot for slot in self._filled() if slot.call_id is None and slot.step_index is None]
        checks = {
            status: status in ("open", "abandoned"),
            "failed_without_outcome": status == "failed" and not outcomes,
            "unknown": not self.is_member,
            "calls_missing": calls_expected is not None and calls < calls_expected,
            "calls_uncounted": calls_expected is not None and calls > calls_expected,
            "rewards_missing": rewards_expected is not None and assigned < rewards_expected,
            "no_trainable_call": not trainable_calls,
            "too_many_rewards": max(self._slots_by_subject().values(), default=0) == bounds.SLOTS,
            "too_many_calls": calls_left_out > 0,
        }
        return {reason for reason, holds in checks.items() if holds}

    def _filled(self) -> list[RewardSlot]:
        """Returns the slots with neither a withdrawal nor a failed scorer."""
        return [slot for slot in self.rewards if slot.value is not None]

    def _slots_by_subject(self) -> "Counter[str | None]":
        """Counts the slots by call id, except the one that the ending carries."""
        return Counter(slot.call_id for slot in self.rewards if not is_completion(slot))
