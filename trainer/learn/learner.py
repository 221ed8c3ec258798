"""One batch into the weights: every verb that training needs, the same on every rank.

Each rank calls the same verb with the same arguments; which part of the work is its own, the engine decides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from trainer.algorithms.schedules import factor
from trainer.learn.engine import TrainingEngine
from trainer.learn.examples import LearnerBatch, mini_batches
from trainer.learn.metrics import merged
from trainer.learn.objective import Objective
from trainer.learn.reference import Reference
from weights.snapshot import WeightsSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many optimizer steps a batch gives, and how large they are."""

    learning_rate: float
    mini_batches: int = 1
    epochs: int = 1
    schedule: str = "constant"
    warmup_steps: int = 0
    steps_max: int = 1
    floor: float = 0.0

    def rate(self, sequence: int, index: int) -> float:
        """Learning rate of the step with this index within the batch of this sequence number."""
        step = sequence * self.mini_batches * self.epochs + index
        return self.learning_rate * factor(
            self.schedule, step, warmup_steps=self.warmup_steps, steps_max=self.steps_max, floor=self.floor
        )


class Learner:
    """A policy under training towards an objective. Belongs to one thread."""

    def __init__(
        self, policy: TrainingEngine, objective: Objective, pace: Pace, *, reference: Reference | None = None
    ) -> None:
        self._policy = policy
        self._objective = objective
        self._pace = pace
        self._reference = reference
        self.device = policy.device
        self.vocabulary = policy.vocabulary

    def train(self, batch: LearnerBatch, before_micro_batch: Callable[[], None] = lambda: None) -> dict[str, float]:
        """One batch; its metrics.

        before_micro_batch may raise to abandon it; then load a checkpoint before training again.
        """
        metrics: dict[str, float] = {}
        if self._reference is not None:
            examples, metrics = self._reference.compared(batch.examples)
            batch = replace(batch, examples=examples)
        parts = mini_batches(batch, self._pace.mini_batches, self._pace.epochs)
        if len(parts) > 1 and self._objective.needs_proximal:
            examples = self._policy.with_proximal(batch.examples, before_micro_batch)
            parts = mini_batches(replace(batch, examples=examples), self._pace.mini_batches, self._pace.epochs)
        steps = [
            self._policy.train(
                self._objective.scaled(part.examples, part.trajectories),
                self._objective,
                version=batch.version,
                seed=batch.seed + part.index,
                learning_rate=self._pace.rate(batch.sequence, part.index),
                on_policy=part is parts[0],
                before_micro_batch=before_micro_batch,
            )
            for part in parts
        ]
        return {
            **metrics,
            **merged([step.totals for step in steps]).means(),
            "grad_norm": sum(step.grad_norm for step in steps) / max(1, len(steps)),
            "learning_rate": self._pace.rate(batch.sequence, parts[-1].index if parts else 0),
            "step_skipped": float(sum(step.skipped for step in steps)),
            "optimizer_steps": float(len(steps)),
            "micro_batches": float(sum(step.micro_batches for step in steps)),
            "sequences": float(len(batch.examples)),
            "tokens": float(sum(map(len, batch.examples))),
        }

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Of the policy, see `TrainingEngine.named_tensors`."""
        return self._policy.named_tensors()

    def export(self, snapshot: WeightsSnapshot, target: Path) -> None:
        """A snapshot of the policy as a HF-format directory, whole or not at all. From any thread."""
        self._policy.export(snapshot, target)

    def save(self, directory: Path, state: dict[str, Any]) -> Callable[[], None]:  # Any: JSON values of the caller
        """Copies everything that training goes on from, and `state`, for a directory; what it returns writes the copy.

        From any thread; while it writes, training goes on. Raises OSError, and so does the writing.
        """
        return self._policy.save(directory, state)

    def load(self, directory: Path) -> dict[str, Any]:  # Any: as saved
        """The inverse of `save`. Raises CheckpointInvalid."""
        return self._policy.load(directory)
