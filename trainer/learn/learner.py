"""One batch into the weights: every verb that training needs, the same on every rank.

Each rank calls the same verb with the same arguments; which part of the work is its own, the engine decides.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from trainer.learn.engine import TrainingEngine
from trainer.learn.examples import LearnerBatch
from trainer.learn.objective import Objective
from trainer.learn.reference import Reference
from weights.snapshot import WeightsSnapshot


class Learner:
    """A policy under training towards an objective. Belongs to one thread."""

    def __init__(self, policy: TrainingEngine, objective: Objective, *, reference: Reference | None = None) -> None:
        self._policy = policy
        self._objective = objective
        self._reference = reference
        self.device = policy.device
        self.vocabulary = policy.vocabulary

    def train(self, batch: LearnerBatch, before_micro_batch: Callable[[], None] = lambda: None) -> dict[str, float]:
        """One batch; its metrics.

        before_micro_batch may raise to abandon it; then load a checkpoint before training again.
        """
        examples, metrics = batch.examples, dict[str, float]()
        if self._reference is not None:
            examples, metrics = self._reference.compared(examples)
        step = self._policy.train(
            self._objective.scaled(examples, batch.trajectories),
            self._objective,
            version=batch.version,
            seed=batch.seed,
            before_micro_batch=before_micro_batch,
        )
        return {
            **metrics,
            **step.totals.means(),
            "grad_norm": step.grad_norm,
            "step_skipped": float(step.skipped),
            "micro_batches": float(step.micro_batches),
            "sequences": float(len(batch.examples)),
            "tokens": float(sum(map(len, batch.examples))),
        }

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Of the policy, see `TrainingEngine.named_tensors`."""
        return self._policy.named_tensors()

    def export(self, snapshot: WeightsSnapshot, target: Path) -> None:
        """A snapshot of the policy as a HF-format directory, whole or not at all. From any thread."""
        self._policy.export(snapshot, target)

    def save(self, directory: Path, state: dict[str, Any]) -> None:  # Any: JSON values of the caller
        """Everything that training goes on from, and `state`, into a directory."""
        self._policy.save(directory, state)

    def load(self, directory: Path) -> dict[str, Any]:  # Any: as saved
        """The inverse of `save`. Raises CheckpointInvalid."""
        return self._policy.load(directory)
