"""Figures of an episode for the curves of its batch: lengths, turns, rewards by slot, its environment. Pure."""

from typing import TYPE_CHECKING

from claw_r1.datapool.fold.bounds import name_bytes
from claw_r1.datapool.fold.merge import winners
from claw_r1.schemas.events import EpisodeFigures, RewardSlot, StepRecord

if TYPE_CHECKING:
    from claw_r1.datapool.batch.candidates import PooledTrajectory

ENVIRONMENT_TAG = "env:"
SLOTS_MAX = 16
"""Reward slots of an episode in a plan, the first by name."""
FIGURES_BYTES, LENGTH_BYTES, SLOT_BYTES = 64, 5, 16


def environment_of(tags: frozenset[str]) -> str:
    """Returns NAME of the first tag `env:NAME`, by name; empty: there is none."""
    names = (tag for tag in tags if tag.startswith(ENVIRONMENT_TAG))
    return min(names, default="").removeprefix(ENVIRONMENT_TAG)


def figures_of(member: "PooledTrajectory") -> EpisodeFigures:
    """The figures of a member, from its records alone."""
    return EpisodeFigures(
        environment=environment_of(member.tags),
        status=member.record.status,
        response_lengths=tuple(response_tokens_of(step) for step in member.steps),
        truncated=sum(step.finish_reason == "length" for step in member.steps),
        seconds=seconds_of(member),
        rewards=rewards_of(member),
    )


def response_tokens_of(step: StepRecord) -> int:
    """Returns the sampled tokens of a response; of one without ids as many as its server counted."""
    return step.response_length or (step.usage.completion_tokens if step.usage is not None else 0)


def seconds_of(member: "PooledTrajectory") -> float | None:
    """Returns the time from its first call to its last reply; None: no call has times. A call begins when it first came in: the
    capture that counts may be a reply that was repeated later."""
    times = [(step.first_received_us, step.timings.done_us) for step in member.steps if step.timings is not None]
    if not times:
        return None
    return (max(done_us for _, done_us in times) - min(received_us for received_us, _ in times)) / 1e6


def rewards_of(member: "PooledTrajectory") -> dict[str, float]:
    """`source/name` -> sum over the episode, of `SLOTS_MAX` slots."""
    sums: dict[str, float] = {}
    for slot in _slots(member):
        name = f"{slot.source}/{slot.name}"
        if slot.value is not None:
            sums[name] = sums.get(name, 0.0) + slot.value
    return {name: sums[name] for name in sorted(sums)[:SLOTS_MAX]}


def _slots(member: "PooledTrajectory") -> list[RewardSlot]:
    own = [slot for slot in member.record.rewards if slot.step_index is None]
    return own + [slot for step in member.steps for slot in winners(step.rewards, ())]


def figures_bytes(member: "PooledTrajectory") -> int:
    """Returns the most bytes that they take of a plan."""
    names = sum(SLOT_BYTES + name_bytes(name) for name in rewards_of(member))
    environment = name_bytes(environment_of(member.tags))
    return FIGURES_BYTES + LENGTH_BYTES * len(member.steps) + names + environment
