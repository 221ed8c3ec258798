"""The outcome of a verdict: events whose every field is a function of the verdict and its subject. Pure."""

import math
from collections.abc import Iterator

from msgspec.structs import replace

from claw_r1.consumers.rewards.config import ScoredSlot
from claw_r1.consumers.rewards.scorer import Opinion
from claw_r1.consumers.rewards.subjects.subject import ATTEMPTS_MAX, Subject, Target
from claw_r1.datapool.fold.validation import REWARD_MAX
from claw_r1.schemas.envelopes import decision_id
from claw_r1.schemas.events import Envelope, RewardAssigned, ScoringFailed, VerdictKept, VerdictRef

PRODUCER = "rewards"
REVISIONS, VERSIONS_MAX = 1000, 61
"""The revisions of a generation; of them each version has `ATTEMPTS_MAX`."""


def revision(slot: ScoredSlot, attempt: int, *, failed: bool) -> int:
    """A higher generation wins, then a higher version (of the first 61), then more knowledge of the subject.

    A failure does not override an earlier value: it ranks below every value of any version and generation.
    """
    if failed:
        return min(slot.generation, ATTEMPTS_MAX - 1)
    return slot.generation * REVISIONS + min(slot.scorer.version, VERSIONS_MAX) * ATTEMPTS_MAX + attempt


def events_of(slot: ScoredSlot, subject: Subject, verdict: VerdictKept) -> Iterator[RewardAssigned | ScoringFailed]:
    """Makes the events of a kept verdict on a subject: a reward per value, or one failure per target.

    None is published, too: it ends the wait for a required reward, and withdraws what was said on less knowledge.

    The first event has the cost and the calls, so that sums over rewards equal sums over verdicts.
    """
    rank, reference = revision(slot, subject.attempt, failed=verdict.failed is not None), _reference(subject, verdict)
    for at, target in enumerate(subject.targets):
        head = _envelope(subject, verdict, target)
        if verdict.failed is None:
            yield RewardAssigned(
                envelope=head,
                group_id=subject.group_id,
                trajectory_id=target.trajectory_id,
                call_id=target.call_id,
                source=slot.scorer.source,
                name=slot.scorer.name,
                value=verdict.values[at],
                revision=rank,
                verdict=reference,
            )
        else:
            yield ScoringFailed(
                envelope=head,
                group_id=subject.group_id,
                trajectory_id=target.trajectory_id,
                call_id=target.call_id,
                source=slot.scorer.source,
                name=slot.scorer.name,
                revision=rank,
                reason=verdict.failed,
                detail=verdict.detail,
                verdict=reference,
            )
        reference = replace(reference, tokens=0, seconds=0.0, price=None, calls=())


def _envelope(subject: Subject, verdict: VerdictKept, target: Target) -> Envelope:
    ids = (verdict.verdict_id, subject.group_id, target.trajectory_id, target.call_id or "")
    rank = (str(subject.attempt), str(subject.occurred_at_us))  # of two ends of one trajectory the later counts
    return Envelope(
        event_id=decision_id("reward", *ids, *rank),
        occurred_at_us=subject.occurred_at_us,
        producer=PRODUCER,
        run_id=subject.run_id,
        causation_id=verdict.envelope.event_id,
    )


def _reference(subject: Subject, verdict: VerdictKept) -> VerdictRef:
    cached = verdict.subject != subject.label
    return VerdictRef(
        verdict_id=verdict.verdict_id,
        version=verdict.version,
        generation=verdict.generation,
        cached=cached,
        tokens=0 if cached else verdict.tokens,
        seconds=0.0 if cached else verdict.seconds,
        price=None if cached else verdict.price,
        calls=verdict.calls,
    )


def flaw_of(opinion: Opinion, subject: Subject) -> tuple[str, str] | None:
    """Returns the flaw in the numbers of an opinion: (reason, detail)."""
    values = opinion.values
    if len(values) != len(subject.targets):
        return "wrong_length", f"{len(values)} values for {len(subject.targets)} targets"
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            return "not_a_number", f"{value!r} is no number"[:200]
        if isinstance(value, float) and not math.isfinite(value):
            return "not_finite", f"{value} is not finite"
        if value is not None and abs(value) > REWARD_MAX:
            return "number_too_large", f"a value is beyond {REWARD_MAX:g}, which nobody could add up"
    return None
