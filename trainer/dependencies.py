"""The collaborators of a training run, as seams: the learner, the pool, the facts, the log, the transfer server.

The composition root (`app.py`) fills them with the real things, tests with fakes or with a process that kills itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, Protocol

from claw_r1.datapool.batch.candidates import Pool
from claw_r1.datapool.view.planned_rows import FactSource, Renderer
from claw_r1.schemas.events import GroupRecord, TrajectoryRecord
from claw_r1.trainer.errors import Stopped
from claw_r1.trainer.journal.journal import Journal
from claw_r1.trainer.metrics import TrainerMetrics
from claw_r1.trainer.versions.publication import Weights, WeightServer

if TYPE_CHECKING:
    from claw_r1.trainer.learn.examples import Example, LearnerBatch


class Milestone(StrEnum):
    """Points between the steps of the order; a collaborator is told each time one is passed."""

    STARTED = "started"
    PLANNED = "planned"
    TRAINED = "trained"
    KEPT = "kept"
    STAGED = "staged"
    PUBLISHED = "published"
    EXPORTED = "exported"
    ENDED = "ended"


class PolicyLearner(Weights, Protocol):
    """A learner: `claw_r1.trainer.learn.learner.Learner`, `claw_r1.trainer.ranks.leader.LedLearner` before
    several ranks, or a fake."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens that the model has."""

    def train(self, batch: "LearnerBatch", before_micro_batch: Callable[[], None]) -> dict[str, float]:
        """One batch into the weights; its metrics."""

    @property
    def critic_digest(self) -> str:
        """The digest of the critic as it is now; empty: it is not hashed yet, or there is none."""

    def hashed_critic(self) -> str:
        """The same, hashed where it is not yet."""

    def examined(self, batch: "LearnerBatch") -> "list[Example]":
        """Its examples with all that the models say of them before the batch."""

    def save(self, directory: Path, state: dict[str, Any]) -> Callable[[], None]:  # Any: JSON values
        """A checkpoint is copied; what is returned writes it, from any thread."""

    def load(self, directory: Path) -> dict[str, Any]:  # Any: as saved
        """The inverse."""


class LivePool(Pool, Protocol):
    """`claw_r1.datapool.view.view.PoolView`, or a fake."""

    def forget(self, group_id: str) -> None:
        """This run needs the group no more."""

    def trajectories(self, record: GroupRecord) -> Sequence[TrajectoryRecord] | None:
        """All members of a group, ready or not; None where the pool has moved on since."""

    def wait_caught_up(self, timeout_s: float) -> None:
        """Until all that stood in the pool at the call was read. Raises NotCaughtUp, LogError when it never will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerDependencies:
    """Everything outside of the process. `reached` is told of milestones; in production it does nothing.

    `render`: makes ids of the messages of calls that have none. `pool_grows`: others add to the pool, so that it is
    worth waiting for a whole batch. `copies`: the directory in which workers of this host look for versions.
    """

    learner: PolicyLearner
    pool: LivePool
    facts: FactSource
    journal: Journal
    transfer_server: WeightServer
    stop: Flag
    producer: str
    reached: Callable[[Milestone], None] = lambda _: None
    pool_grows: bool = True
    render: Renderer | None = None
    copies: Path | None = None
    metrics: TrainerMetrics = field(default_factory=TrainerMetrics)

    def raise_if_stopped(self) -> None:
        """Raises Stopped after a request to stop."""
        if self.stop.is_set():
            raise Stopped("asked to stop")
