"""Rank 0: the learner that a run sees, alone or at the head of others."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from claw_r1.trainer.compose import learner_of
from claw_r1.trainer.learn.engine import leave
from claw_r1.trainer.learn.examples import Example, Float32s, LearnerBatch
from claw_r1.trainer.learn.learner import Learner
from claw_r1.trainer.ranks.launch import Launched
from claw_r1.trainer.ranks.member import TRAIN, member
from claw_r1.trainer.ranks.process_group import LEAVE, RankGroup
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.weights.snapshot import WeightsSnapshot


class LedLearner:
    """A `Learner` whose verbs all ranks perform, its own one being this rank's."""

    def __init__(self, learner: Learner, group: RankGroup) -> None:
        self._learner = learner
        self._group = group
        self.device = learner.device
        self.vocabulary = learner.vocabulary

    @property
    def critic_digest(self) -> str:
        """See `Learner.critic_digest`: the same on every rank."""
        return self._learner.critic_digest

    def train(self, batch: LearnerBatch, before_micro_batch: Callable[[], None] = lambda: None) -> dict[str, float]:
        """See `Learner.train`."""
        self._group.send(TRAIN, batch)
        with self._group.performed():
            return self._learner.train(batch, self._group.leading(before_micro_batch))

    def examined(self, batch: LearnerBatch) -> list[Example]:
        """See `Learner.examined`."""
        self._group.send("examined", batch)
        with self._group.performed():
            return self._learner.examined(batch)

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """See `Learner.named_tensors`. Read to its end even where the caller stops: the others go all the way."""
        self._group.send("named_tensors")
        tensors = self._learner.named_tensors()
        try:
            yield from tensors
        finally:
            with self._group.performed():
                for _ in tensors:
                    pass

    def logprobs(self, ids: Sequence[int]) -> Float32s:
        """See `Learner.logprobs`."""
        self._group.send("logprobs", ids)
        with self._group.performed():
            return self._learner.logprobs(ids)

    def adapter_tensors(self) -> dict[str, Tensor]:
        """See `Learner.adapter_tensors`. Without adapters no other rank is asked."""
        if not self._learner.has_adapter:
            return {}
        self._group.send("adapter_tensors")
        with self._group.performed():
            return self._learner.adapter_tensors()

    def export(self, snapshot: WeightsSnapshot, target: Path, adapter: Mapping[str, Tensor]) -> None:
        """See `Learner.export`: the copies have it all, and no other rank is needed."""
        self._learner.export(snapshot, target, adapter)

    def hashed_critic(self) -> str:
        """See `Learner.hashed_critic`."""
        self._group.send("hashed_critic")
        with self._group.performed():
            return self._learner.hashed_critic()

    def save(self, directory: Path, state: dict[str, Any]) -> Callable[[], None]:  # Any: JSON values of the caller
        """See `Learner.save`. Every rank writes its part of the directory, which must be a shared one.

        The parts of the others are written when this returns.
        """
        self._group.send("save", directory.absolute(), state)
        with self._group.performed():
            return self._learner.save(directory, state)

    def load(self, directory: Path) -> dict[str, Any]:  # Any: as saved
        """See `Learner.load`."""
        self._group.send("load", directory.absolute())
        with self._group.performed():
            return self._learner.load(directory)


@contextmanager
def leading(settings: TrainerSettings, launched: Launched, stop: threading.Event) -> Iterator[Learner | LedLearner]:
    """The learner of a run, whose other ranks are there as long as the block lasts. Raises as `learner_of`, and RankLost."""
    if launched.place.size == 1:
        try:
            yield learner_of(settings)
        finally:
            leave()
        return
    with member(settings, launched.place, stop, launched.ended) as (learner, group):
        yield LedLearner(learner, group)
        group.send(LEAVE)
        with group.performed():
            pass
