"""The catalogue of topics: who writes what where, under which key, kept how long. Names exist here and nowhere else.

Invariant: every topic of the data path has one partition count, and every producer partitions by murmur2 of the same
key, so that all facts and records of a group lie in one partition number.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

DAY_MS = 86_400_000
Policy = Literal["delete", "compact"]
LARGEST_RECORD_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One entry of the catalogue. `name` is without prefix; `records` are short names of event types."""

    name: str
    key: str
    policy: Policy
    records: tuple[str, ...]
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    """Rooms and consumers that import the topic, in brackets what for;
    `tests/architecture/test_topic_readers.py` compares."""
    transactional: bool = False
    derived: bool = False
    """Made of facts alone: a rebuild writes it again, under the name of another generation."""
    doc: str = ""
    config: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, str]:
        """Topic configuration as Kafka takes it."""
        kept = {"retention.ms": "-1", "retention.bytes": "-1"} if self.policy == "delete" else COMPACTION
        size = {"max.message.bytes": str(LARGEST_RECORD_BYTES)}
        return {"cleanup.policy": self.policy, **kept, **size, **self.config}


COMPACTION = {
    # A view that is paused for longer than delete.retention.ms misses tombstones; one from an older file is begun again at 0.
    "segment.ms": str(DAY_MS // 4),
    "min.cleanable.dirty.ratio": "0.3",
    "max.compaction.lag.ms": str(DAY_MS),
    "delete.retention.ms": str(7 * DAY_MS),
}

CALLS = Topic(
    name="calls",
    key="group_id",
    policy="delete",
    records=(
        "CallCaptured",
        "CallFailed",
        "GroupOpened",
        "TrajectoryStarted",
        "TrajectoryCompleted",
        "TrajectoryAbandoned",
        "GroupClosed",
        "TrajectoryEvicted",
        "GroupEvicted",
    ),
    writers=("gateway", "reactors", "operator", "dashboard"),
    readers=(
        "streams",
        "gateway (what is not folded yet)",
        "trainer (by position)",
        "quality",
        "rewards",
        "dashboard (by position)",
        "export",
        "verify",
        "claw",
    ),
    doc="Facts: model calls and the life of trajectories and groups.",
)
REWARDS = Topic(
    name="rewards",
    key="group_id",
    policy="delete",
    records=("RewardAssigned", "ScoringFailed", "StepCurated", "PreferenceGiven", "OutputEdited"),
    writers=("gateway", "rewards", "quality", "operator", "dashboard"),
    readers=(
        "streams",
        "rewards (agreement)",
        "dashboard",
        "export",
        "lineage (of a verdict)",
        "verify",
        "claw",
    ),
    doc="Facts: what was judged, by whom.",
)
FACTS = (CALLS, REWARDS)
"""The topics of facts: what everything else is made of."""
VERDICTS = Topic(
    name="rewards.verdicts",
    key="verdict_id",
    policy="compact",
    records=("VerdictKept",),
    writers=("rewards",),
    readers=("rewards (to restore)", "lineage", "dashboard", "claw"),
    transactional=True,
    doc="What scorers said, kept before it becomes a reward; nobody is asked the same twice.",
)
STEPS = Topic(
    name="datapool.steps",
    key="group/trajectory/call",
    policy="compact",
    records=("StepRecord",),
    writers=("streams",),
    readers=("streams (to restore)", "trainer", "dashboard", "lineage", "verify", "claw"),
    transactional=True,
    derived=True,
    doc="The pool: steps; their tokens stand in the facts alone.",
)
TRAJECTORIES = Topic(
    name="datapool.trajectories",
    key="group/trajectory",
    policy="compact",
    records=("TrajectoryRecord",),
    writers=("streams",),
    readers=("streams (to restore)", "trainer", "rewards", "dashboard", "verify", "claw"),
    transactional=True,
    derived=True,
    doc="The pool: trajectories with their readiness.",
)
GROUPS = Topic(
    name="datapool.groups",
    key="group_id",
    policy="compact",
    records=("GroupRecord",),
    writers=("streams",),
    readers=(
        "streams (to restore)",
        "trainer",
        "rewards",
        "dashboard",
        "gateway (admission)",
        "verify",
        "claw",
    ),
    transactional=True,
    derived=True,
    doc="The pool: groups with their readiness and statistics.",
)
POSITIONS = Topic(
    name="streams.positions",
    key="partition",
    policy="compact",
    records=("StreamPosition",),
    writers=("streams",),
    readers=("streams (to restore)", "verify", "claw"),
    transactional=True,
    derived=True,
    doc="How far the pool of a partition has folded its sources.",
)
BATCHES = Topic(
    name="training.batches",
    key="run_id",
    policy="delete",
    records=("RunStarted", "BatchAssembled", "BatchTrained", "BatchSkipped", "VersionEvaluated", "RunEnded"),
    writers=("the run's trainer",),
    readers=("trainer (to resume)", "gateway (admission)", "lineage", "verify", "runs", "dashboard", "claw"),
    transactional=True,
    doc="What each run planned, trained and left out.",
)
WEIGHTS = Topic(
    name="weights",
    key="model_id",
    policy="delete",
    records=("WeightsPublished",),
    writers=("the run's trainer",),
    readers=("rollout", "trainer (to resume)", "lineage", "verify", "runs", "dashboard", "claw"),
    transactional=True,
    doc="Which weights versions exist and where to get them.",
)
WORKERS = Topic(
    name="rollout.workers",
    key="worker_id",
    policy="compact",
    records=("WorkerReported",),
    writers=("rollout supervisors",),
    readers=("gateway (routing)", "trainer", "rollout (its name)", "dashboard", "claw"),
    doc="What each rollout worker is and can do now.",
    config={"message.timestamp.type": "LogAppendTime"},  # how old a report is must not depend on the worker's clock
)
TAKES_TRAFFIC = ("ready", "updating", "behind")
"""States in which a worker answers calls; one that is `behind` answers none that would be trained on."""
KEYS = Topic(
    name="keys",
    key="sha256 of the key",
    policy="compact",
    records=("KeyRecorded",),
    writers=("operator",),
    readers=("gateway", "dashboard", "claw"),
    doc="API keys by their hash: whose, what for, until when.",
)
DEAD_LETTERS = Topic(
    name="dead-letters",
    key="original key",
    policy="delete",
    records=(),
    writers=("any reader",),
    readers=("dashboard", "claw"),
    doc="Records that could not be read or folded, byte for byte, with the reason in headers.",
)
TOPICS = (
    CALLS,
    REWARDS,
    VERDICTS,
    STEPS,
    TRAJECTORIES,
    GROUPS,
    POSITIONS,
    BATCHES,
    WEIGHTS,
    WORKERS,
    KEYS,
    DEAD_LETTERS,
)


def insync_of(replication: int) -> int:
    """Returns how many of so many replicas must have a record before it counts as written: the majority."""
    return replication // 2 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The topics of one installation: their full names, partition count and replication.

    Facts, plans and weights have one name for ever. The pool has one per generation, so that a rebuild can write the
    next one while everybody reads this one.
    """

    prefix: str = "claw"
    partitions: int = 32
    replication: int = 1
    generation: int = 1

    def name(self, topic: Topic) -> str:
        """Full name on the broker, for example `claw.calls`; of the pool's second generation `claw.datapool.g2.steps`."""
        if topic.derived and self.generation > 1:
            room, _, name = topic.name.partition(".")
            return f"{self.prefix}.{room}.g{self.generation}.{name}"
        return f"{self.prefix}.{topic.name}"

    @property
    def streams_group(self) -> str:
        """The consumer group of streams, one per generation of the pool; what it has committed is in the pool."""
        name = f"{self.prefix}.streams"
        return name if self.generation == 1 else f"{name}.g{self.generation}"

    @property
    def readers_group(self) -> str:
        """The name under which readers ask that commit nothing."""
        return f"{self.prefix}.readers"

    def settings(self, topic: Topic) -> dict[str, str]:
        """Configuration of one of its topics as Kafka takes it: with several replicas an acknowledged record outlives the
        loss of any minority of them."""
        if self.replication == 1:
            return topic.settings()
        insync = {"min.insync.replicas": str(insync_of(self.replication)), "unclean.leader.election.enable": "false"}
        return topic.settings() | insync

    def topic(self, full_name: str) -> Topic:
        """Entry of a full name. Raises KeyError when the catalogue has none."""
        return {self.name(topic): topic for topic in TOPICS}[full_name]

    def __iter__(self) -> Iterator[Topic]:
        return iter(TOPICS)
