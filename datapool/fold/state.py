"""The state of one group: exactly the content of its records, without derived values.

Invariant: nothing here is mutated. A fold returns a new value that shares unchanged parts, so a reference is a
snapshot. Everything here can be read back from the group's records (`restore.py`). Of two values of which one wins, the
higher `rank` does; equal ranks are equal values.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from claw_r1.datapool.fold.merge import Rank, content
from claw_r1.schemas.events import (
    CallCaptured,
    CallFailed,
    Curation,
    GroupClosed,
    GroupEvicted,
    GroupOpened,
    RewardAssigned,
    RewardSlot,
    ScoringFailed,
    StepCurated,
    StepRecord,
    TrajectoryAbandoned,
    TrajectoryCompleted,
    TrajectoryEvicted,
    TrajectoryStarted,
    TrajectoryStatus,
)

TrajectoryFact = (
    CallCaptured
    | CallFailed
    | RewardAssigned
    | ScoringFailed
    | StepCurated
    | TrajectoryStarted
    | TrajectoryCompleted
    | TrajectoryAbandoned
    | TrajectoryEvicted
)
Fact = TrajectoryFact | GroupOpened | GroupClosed | GroupEvicted
"""Everything on claw.calls and claw.rewards but what `validation.PASSED_BY` names."""


class SlotKey(NamedTuple):
    """Names a reward slot within its subject; step_index is None but for rewards by index."""

    step_index: int | None
    source: str
    name: str


class SignOfLife(NamedTuple):
    """The latest sign of life, on the clock of its producer."""

    occurred_at_us: int = 0
    event_id: str = ""


NO_PROGRESS = SignOfLife()
COMPLETION = SlotKey(None, "agent", "completion")
"""The slot of a completion's own reward. No other event fills it: completing again replaces
the whole completion."""
SlotMap = Mapping[SlotKey, RewardSlot]
STATUS_RANK: dict[TrajectoryStatus, int] = {"open": 0, "abandoned": 1, "failed": 2, "completed": 3, "evicted": 4}


class StepState(Struct, frozen=True):
    """One call."""

    capture: StepRecord | None = None
    """The record as the winning CallCaptured alone decides it; `reasons` holds flaws that
    only the capture shows."""
    attempts: tuple[int, ...] = ()
    first_received_us: int = 0
    """The first time over all captures, whichever counts: the place among the calls."""
    slots: SlotMap = {}
    curation: Curation | None = None
    buggy: bool = False
    """A fold raised on one of its facts."""


class Ending(Struct, frozen=True):
    """The winning event on the state of a trajectory, as a whole: its status, counts and reward."""

    status: TrajectoryStatus = "open"
    occurred_at_us: int = 0
    event_id: str = ""
    reason: str = ""
    calls: int | None = None
    rewards: int | None = None
    reward: float | None = None
    revision: int = 0

    @property
    def rank(self) -> Rank:
        words = content(self.reason, self.calls, self.rewards, self.reward)
        absolute = self.status != "open", self.status == "evicted"
        return *absolute, self.revision, STATUS_RANK[self.status], self.occurred_at_us, self.event_id, words

    @property
    def slots(self) -> tuple[RewardSlot, ...]:
        """The completion's own reward, if it carries one."""
        if self.reward is None:
            return ()
        slot = RewardSlot(
            source=COMPLETION.source,
            name=COMPLETION.name,
            value=self.reward,
            revision=0,
            event_id=self.event_id,
            occurred_at_us=self.occurred_at_us,
        )
        return (slot,)


class Registration(Struct, frozen=True):
    """The winning TrajectoryStarted; without an event id there was none."""

    occurred_at_us: int = 0
    event_id: str = ""
    task: str | None = None
    tags: tuple[str, ...] = ()
    metadata: str | None = None
    idle_s: float | None = None
    run_id: str | None = None
    revision: int = 0

    @property
    def rank(self) -> Rank:
        last = content(self.task, self.tags, self.metadata, self.idle_s, self.run_id)
        return bool(self.event_id), self.revision, self.occurred_at_us, self.event_id, last


class TrajectoryState(Struct, frozen=True):
    """One trajectory. Once evicted, only `ending` has content."""

    ending: Ending = Ending()
    registration: Registration = Registration()
    steps: Mapping[str, StepState] = {}
    failed_calls: frozenset[str] = frozenset()
    slots: SlotMap = {}
    channel: str = ""
    agent: str | None = None
    calls_run_id: str | None = None
    """The first by name that its captured calls name."""
    progress: SignOfLife = NO_PROGRESS
    buggy: bool = False

    @property
    def run_id(self) -> str | None:
        """The run that played it, by its registration, else by its calls. Judgements name none."""
        return self.calls_run_id if self.registration.run_id is None else self.registration.run_id

    @property
    def evicted(self) -> bool:
        return self.ending.status == "evicted"

    @property
    def known(self) -> bool:
        """An agent showed itself at least once; a reward alone makes no member of the group."""
        started = bool(self.registration.event_id or self.failed_calls or self.ending.status != "open")
        return started or any(self.steps[call_id].capture is not None for call_id in self.steps)


class Declaration(Struct, frozen=True):
    """The winning GroupOpened."""

    occurred_at_us: int
    event_id: str
    expected_size: int | None = None
    task: str | None = None
    deadline_us: int | None = None
    agent: str | None = None
    tags: tuple[str, ...] = ()
    ordinal: int | None = None
    run_id: str | None = None
    revision: int = 0

    @property
    def rank(self) -> Rank:
        kept = self.run_id, self.ordinal  # first: so that which one wins is the same before an eviction and after it
        words = content(*kept, self.expected_size, self.task, self.deadline_us, self.agent, self.tags)
        return self.revision, self.occurred_at_us, self.event_id, words

    @property
    def stub(self) -> "Declaration":
        """The part that an evicted group keeps: its run, and its place in its order of tasks."""
        return Declaration(
            self.occurred_at_us, self.event_id, ordinal=self.ordinal, run_id=self.run_id, revision=self.revision
        )


class Closing(Struct, frozen=True):
    """The winning GroupClosed."""

    occurred_at_us: int
    event_id: str
    members: tuple[str, ...] = ()

    @property
    def rank(self) -> Rank:
        return self.occurred_at_us, self.event_id, self.members


class Eviction(Struct, frozen=True):
    """The winning GroupEvicted."""

    occurred_at_us: int
    event_id: str
    reason: str

    @property
    def rank(self) -> Rank:
        return self.occurred_at_us, self.event_id, self.reason


class GroupState(Struct, frozen=True):
    """One group. Channel, run of the calls and progress are over all of its facts, of evicted trajectories too.

    Once the group itself is evicted, only the word of it, the stub of its declaration and the run of its calls have
    content.
    """

    group_id: str
    eviction: Eviction | None = None
    declaration: Declaration | None = None
    closing: Closing | None = None
    trajectories: Mapping[str, TrajectoryState] = {}
    channel: str = ""
    calls_run_id: str | None = None
    """The first by name that its captured calls name."""
    progress: SignOfLife = NO_PROGRESS
    buggy: bool = False

    @property
    def run_id(self) -> str | None:
        """The run that the group belongs to: the run that its opening names, else that of its calls. Whoever judges in
        it names none."""
        declared = self.declaration.run_id if self.declaration is not None else None
        return self.calls_run_id if declared is None else declared
