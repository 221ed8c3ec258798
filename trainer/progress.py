"""The progress of a run, and the decision whether it is over. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from claw_r1.schemas.events import RunEnded
from claw_r1.trainer.errors import NothingLearned
from claw_r1.trainer.settings import TrainerSettings

NO_BATCH = -1
USED_UP = "pool_used_up"
REWARDS_FOR_STOP = 5
"""Batches whose mean reward is compared with stop_reward."""
SKIPPED_MAX = 3
"""Batches in a row whose step was skipped, after which the run ends."""


@dataclass(slots=True)
class TrainingProgress:
    """`sequence`: the last batch in the weights. `version`: of these weights, None while their bytes have no number.

    `digest`: of the weights that `version` names. `version_free`: the next number. `consumed`: groups that were planned or
    skipped. `rewards`: mean reward per batch. `skipped`: the newest batches in a row of which a step was skipped.
    `without_advantage`: how many of the newest batches in a row had none.
    `given_up`: batches that were planned and are never trained; their numbers stay taken.
    """

    sequence: int = NO_BATCH
    version: int | None = None
    digest: str = ""
    version_free: int = 0
    consumed: set[str] = field(default_factory=set)
    rewards: list[float] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    without_advantage: int = 0
    given_up: set[int] = field(default_factory=set)

    def count(self, sequence: int, metrics: Mapping[str, float]) -> None:
        """One more batch was trained and published."""
        self.rewards.append(metrics["reward"])
        flat = metrics.get("advantage_share") == 0  # None: of a critic, or of an older trainer
        self.without_advantage = self.without_advantage + 1 if flat else 0
        self.skipped = (
            [*self.skipped, sequence] if metrics.get("step_skipped") or metrics.get("critic_step_skipped") else []
        )

    def raise_if_nothing_learned(self) -> None:
        """Raises NothingLearned when the last SKIPPED_MAX batches had to be skipped. Resumed, the run tries one more."""
        if len(self.skipped) >= SKIPPED_MAX:
            names = ", ".join(map(str, self.skipped))
            raise NothingLearned(
                f"batches {names}: a loss or gradient was not finite, so no weight was changed (see nonfinite_* in their "
                f"metrics). `--replay-batch {self.skipped[-1]}` shows every number of the last one"
            )

    @property
    def batches(self) -> int:
        """Batches in the weights."""
        return self.sequence + 1 - sum(sequence < self.sequence for sequence in self.given_up)

    @property
    def sequence_published(self) -> int | None:
        """The last batch in the weights, as their event names it; None: they are the initial ones."""
        return None if self.sequence == NO_BATCH else self.sequence

    @property
    def sequence_free(self) -> int:
        """The number of the next plan."""
        return max(self.sequence, *self.given_up, NO_BATCH) + 1

    @property
    def named_version(self) -> int:
        """The version of the weights. Only where they have one: between batches."""
        if self.version is None:
            raise RuntimeError("the weights have no version yet")
        return self.version


def reason_to_end(progress: TrainingProgress, settings: TrainerSettings) -> str | None:
    """Returns why the run is over, or None."""
    if progress.batches >= settings.batches_max:
        return "batches_max"
    if settings.stop_reward is None or progress.batches < max(settings.batches_min, REWARDS_FOR_STOP):
        return None
    return (
        "stop_reward" if sum(progress.rewards[-REWARDS_FOR_STOP:]) / REWARDS_FOR_STOP >= settings.stop_reward else None
    )


def why_over(ended: RunEnded, progress: TrainingProgress, settings: TrainerSettings) -> str | None:
    """Returns why a run that ended before has nothing to do under these settings; None: it goes on."""
    reason = USED_UP if ended.reason == USED_UP else reason_to_end(progress, settings)
    if reason is None:
        return None
    further = {
        "batches_max": f"batches_max is {settings.batches_max}: a larger one continues it",
        "stop_reward": f"its last batches reached stop_reward {settings.stop_reward}: a larger one, or none, continues it",
        USED_UP: "no whole batch was left for it: another run_id begins anew",
    }
    return f"run {ended.run_id} is over after {progress.batches} batches, and nothing was done; {further[reason]}"
