"""One batch into the weights: every verb that training needs, the same on every rank.

Each rank calls the same verb with the same arguments; which part of the work is its own, the engine decides.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

from torch import Tensor

from claw_r1.trainer.algorithms.schedules import factor
from claw_r1.trainer.errors import CheckpointInvalid
from claw_r1.trainer.learn.engine import TrainingEngine
from claw_r1.trainer.learn.examples import Example, Float32s, LearnerBatch, mini_batches
from claw_r1.trainer.learn.metrics import merged
from claw_r1.trainer.learn.models.critic import Critic
from claw_r1.trainer.learn.models.reference import Reference
from claw_r1.trainer.learn.objective import Objective
from claw_r1.weights.snapshot import WeightsSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The number of optimizer steps of a batch, and the factor of their learning rate: see `schedules.factor`."""

    mini_batches: int = 1
    epochs: int = 1
    schedule: str = "constant"
    warmup_steps: int = 0
    steps_max: int = 1
    floor: float = 0.0

    def factor(self, sequence: int, index: int) -> float:
        """Returns the factor of the step with this index within the batch of this sequence number."""
        step = sequence * self.mini_batches * self.epochs + index
        return factor(self.schedule, step, warmup_steps=self.warmup_steps, steps_max=self.steps_max, floor=self.floor)


class Learner:
    """A policy under training towards an objective, with its critic and reference where it has them. Belongs
    to one thread."""

    def __init__(
        self,
        policy: TrainingEngine,
        objective: Objective,
        pace: Pace = Pace(),
        *,
        reference: Reference | None = None,
        critic: Critic | None = None,
    ) -> None:
        self._policy = policy
        self._objective = objective
        self._pace = pace
        self._reference = reference
        self._critic = critic
        self.critic_digest = ""
        """sha256 hex of the present critic; empty: not hashed since the last batch, or there is none."""
        self.device = policy.device
        self.vocabulary = policy.vocabulary

    def train(self, batch: LearnerBatch, before_micro_batch: Callable[[], None] = lambda: None) -> dict[str, float]:
        """One batch; its metrics.

        before_micro_batch may raise to abandon it; then load a checkpoint before training again.
        """
        examples, metrics = self._prepared(batch.examples)
        batch = replace(batch, examples=examples)
        if self._critic is not None and self._critic.warms_up(batch.sequence):
            metrics["critic_warmup"] = 1.0  # the policy stays as it is
        else:
            metrics |= self._train_policy(batch, before_micro_batch)
        if self._critic is not None:
            if not metrics.get("step_skipped"):
                metrics |= self._train_critic(self._critic, batch, before_micro_batch)
            self.critic_digest = ""
        return {**metrics, "sequences": float(len(examples)), "tokens": float(sum(map(len, examples)))}

    def examined(self, batch: LearnerBatch) -> list[Example]:
        """The examples with results of reference, critic and the policy itself (`proximal`); trains nothing."""
        return self._policy.with_proximal(self._prepared(batch.examples)[0], lambda: None)

    def _prepared(self, examples: Sequence[Example]) -> tuple[list[Example], dict[str, float]]:
        """With all that other models say of them before the first step; metrics of that."""
        prepared, metrics = list(examples), dict[str, float]()
        if not prepared:
            return prepared, metrics
        if self._reference is not None:
            prepared, metrics = self._reference.compared(prepared)
        if self._critic is not None:
            prepared, of_critic = self._critic.judged(prepared)
            metrics |= of_critic
        return prepared, metrics

    def _train_critic(
        self, critic: Critic, batch: LearnerBatch, before_micro_batch: Callable[[], None]
    ) -> dict[str, float]:
        """Trains the critic by as many optimizer steps as the policy has, on the same parts; means over them."""
        pace = self._pace
        steps = [
            critic.train(
                part.examples,
                seed=batch.seed + part.index,
                rate_factor=pace.factor(batch.sequence, part.index),
                before_micro_batch=before_micro_batch,
            )
            for part in mini_batches(batch, pace.mini_batches, pace.epochs)
        ]
        return {name: sum(step[name] for step in steps) / len(steps) for name in (steps[0] if steps else {})}

    def _train_policy(self, batch: LearnerBatch, before_micro_batch: Callable[[], None]) -> dict[str, float]:
        """All optimizer steps of a batch. A token that is trained in each epoch counts in the means as often."""
        pace, objective = self._pace, self._objective
        if pace.mini_batches * pace.epochs > 1 and objective.needs_proximal:
            teaches = [objective.teaches(example) for example in batch.examples]
            taught = iter(self._policy.with_proximal(list(compress(batch.examples, teaches)), before_micro_batch))
            examples = [next(taught) if own else example for example, own in zip(batch.examples, teaches, strict=True)]
            batch = replace(batch, examples=examples)
        parts = mini_batches(batch, pace.mini_batches, pace.epochs)
        steps = [
            self._policy.train(
                objective.scaled(part.examples, part.trajectories),
                objective,
                version=batch.version,
                seed=batch.seed + part.index,
                rate_factor=pace.factor(batch.sequence, part.index),
                on_policy=part is parts[0],
                before_micro_batch=before_micro_batch,
            )
            for part in parts
        ]
        return {
            **merged([step.totals for step in steps]).means(batch.environments),
            "grad_norm": sum(step.grad_norm for step in steps) / max(1, len(steps)),
            "learning_rate": steps[-1].learning_rate if steps else 0.0,
            "step_skipped": float(sum(step.skipped for step in steps)),
            "optimizer_steps": float(len(steps)),
            "micro_batches": float(sum(step.micro_batches for step in steps)),
            "tokens_computed": float(sum(step.tokens_computed for step in steps)),
        }

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yields the policy's tensors, see `TrainingEngine.named_tensors`."""
        return self._policy.named_tensors()

    def logprobs(self, ids: Sequence[int]) -> Float32s:
        """Returns the policy's log-probabilities, see `TrainingEngine.logprobs`."""
        return self._policy.logprobs(ids)

    @property
    def has_adapter(self) -> bool:
        """The same on every rank."""
        return self._policy.has_adapter

    def adapter_tensors(self) -> dict[str, Tensor]:
        """Returns copies of the policy's adapters, see `TrainingEngine.adapter_tensors`."""
        return self._policy.adapter_tensors()

    def export(self, snapshot: WeightsSnapshot, target: Path, adapter: Mapping[str, Tensor]) -> None:
        """A snapshot of the policy as a HF-format directory, whole or not at all. From any thread."""
        self._policy.export(snapshot, target, adapter)

    def hashed_critic(self) -> str:
        """`critic_digest`, hashed where it is not yet: every byte of the critic, on one core while all GPUs wait."""
        if self._critic is not None and not self.critic_digest:
            self.critic_digest = self._critic.digest()
        return self.critic_digest

    def save(self, directory: Path, state: dict[str, Any]) -> Callable[[], None]:  # Any: JSON values of the caller
        """Copies everything that training resumes from, and `state`, for a directory; returns the writer of the copy.

        The writer runs in any thread, beside training. Raises OSError, and so does the writer.
        """
        parts = [self._policy.save(directory, {**state, "critic_digest": self.hashed_critic()})]
        if self._critic is not None:
            parts.append(self._critic.save(directory))

        def write() -> None:
            for part in parts:
                part()

        return write

    def load(self, directory: Path) -> dict[str, Any]:  # Any: as saved
        """The inverse of `save`. Raises CheckpointInvalid."""
        state = self._policy.load(directory)
        saved = state.pop("critic_digest", "")
        if self._critic is None:  # where there was one, the algorithm was allowed to change: it goes
            return state
        if not saved:  # the same: one begins
            self._critic.begin()
            return state
        self._critic.load(directory)
        self.critic_digest = ""
        if self.hashed_critic() != saved:
            raise CheckpointInvalid(f"checkpoint {directory.name} holds another critic than it was written with")
        return state
