"""One batch into the weights: every verb that training needs, the same on every rank.

Each rank calls the same verb with the same arguments; which part of the work is its own, the engine decides.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from trainer.errors import CheckpointInvalid
from trainer.learn.engine import TrainingEngine
from trainer.learn.examples import Example, LearnerBatch
from trainer.learn.models.critic import Critic
from trainer.learn.models.reference import Reference
from trainer.learn.objective import Objective
from weights.snapshot import WeightsSnapshot


class Learner:
    """A policy under training towards an objective, with its critic and reference where it has them. Belongs to one thread."""

    def __init__(
        self,
        policy: TrainingEngine,
        objective: Objective,
        *,
        reference: Reference | None = None,
        critic: Critic | None = None,
    ) -> None:
        self._policy = policy
        self._objective = objective
        self._reference = reference
        self._critic = critic
        self.critic_digest = ""
        """sha256 hex of the critic after the last batch or checkpoint; empty: there is none."""
        self.device = policy.device
        self.vocabulary = policy.vocabulary

    def train(self, batch: LearnerBatch, before_micro_batch: Callable[[], None] = lambda: None) -> dict[str, float]:
        """One batch; its metrics.

        before_micro_batch may raise to abandon it; then load a checkpoint before training again.
        """
        examples, metrics = self._prepared(batch.examples)
        skipped = False
        if self._critic is not None and self._critic.warms_up(batch.sequence):
            metrics["critic_warmup"] = 1.0  # the policy stays as it is
        else:
            step = self._policy.train(
                self._objective.scaled(examples, batch.trajectories),
                self._objective,
                version=batch.version,
                seed=batch.seed,
                before_micro_batch=before_micro_batch,
            )
            skipped = step.skipped
            metrics |= {
                **step.totals.means(),
                "grad_norm": step.grad_norm,
                "step_skipped": float(step.skipped),
                "micro_batches": float(step.micro_batches),
            }
        if self._critic is not None and not skipped:
            metrics |= self._critic.train(examples, seed=batch.seed, before_micro_batch=before_micro_batch)
        self.critic_digest = self._digest()
        return {
            **metrics,
            "sequences": float(len(batch.examples)),
            "tokens": float(sum(map(len, batch.examples))),
        }

    def _prepared(self, examples: Sequence[Example]) -> tuple[list[Example], dict[str, float]]:
        """With all that other models say of them before the first step; metrics of that."""
        prepared, metrics = list(examples), dict[str, float]()
        if self._reference is not None:
            prepared, metrics = self._reference.compared(prepared)
        if self._critic is not None:
            prepared, of_critic = self._critic.judged(prepared)
            metrics |= of_critic
        return prepared, metrics

    def _digest(self) -> str:
        return "" if self._critic is None else self._critic.digest()

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Of the policy, see `TrainingEngine.named_tensors`."""
        return self._policy.named_tensors()

    def export(self, snapshot: WeightsSnapshot, target: Path) -> None:
        """A snapshot of the policy as a HF-format directory, whole or not at all. From any thread."""
        self._policy.export(snapshot, target)

    def save(self, directory: Path, state: dict[str, Any]) -> None:  # Any: JSON values of the caller
        """Everything that training goes on from, and `state`, into a directory."""
        self._policy.save(directory, {**state, "critic_digest": self.critic_digest})
        if self._critic is not None:
            self._critic.save(directory)

    def load(self, directory: Path) -> dict[str, Any]:  # Any: as saved
        """The inverse of `save`. Raises CheckpointInvalid."""
        state = self._policy.load(directory)
        if self._critic is not None:
            self._critic.load(directory)
            self.critic_digest = self._digest()
        if self.critic_digest != state.pop("critic_digest", ""):
            raise CheckpointInvalid(f"checkpoint {directory.name} holds another critic than it was written with")
        return state
