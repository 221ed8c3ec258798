"""A pool and a run that trains from it, on the stage's log: plans are those that a trainer would make."""

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.events import BatchSkipped, BatchTrained, Event, WeightsPublished
from claw_r1.schemas.topics import GROUPS, STEPS, TRAJECTORIES
from tests import facts
from tests.consumers.dashboard.stage import DashboardStage
from tests.consumers.runs.observed import started, weights
from tests.trainer.pooled import RUN, group, rows_of

SPEC = BatchSpec(group_size=2, groups_per_batch=2)
LAX = SPEC.model_copy(update={"staleness_max": 99})
NAMES = {topic.name: topic for topic in (STEPS, TRAJECTORIES, GROUPS)}
SECOND_US = 1_000_000


class TrainingStage(DashboardStage):
    """Facts with their tokens, and a run."""

    def __init__(self, history: Iterable[Event] = ()) -> None:
        super().__init__()
        self.rows = PoolRows()
        self.planned: set[str] = set()
        self.fill(history)

    def fill(self, history: Iterable[Event]) -> None:
        """Whole groups, new to the pool."""
        for _, name, key, value in rows_of(history, lambda item: self.log.append([item])[0]):
            self.rows.apply(name, key, value)
            self.log.append([Outgoing(topic=NAMES[name], key=key, value=value, partition=0)])

    def begin(self, config: str = "{}", run_id: str = RUN) -> None:
        """A run and its initial weights."""
        self.report(started(run_id, config), replace(weights(0, run_id=run_id), sequence=None))

    def train(self, sequence: int, spec: BatchSpec = SPEC, run_id: str = RUN, **metrics: float) -> list[str]:
        """Plan, step and weights of the next batch; the groups that it took."""
        selection = select(self.rows, spec, sequence, run_id, self.planned)
        fields = {"run_id": run_id, "sequence": sequence}
        planned = facts.envelope(at_us=(sequence + 1) * 60 * SECOND_US - SECOND_US, run_id=run_id)
        plan = assemble(selection.chosen, spec, version=sequence, seed=7, envelope=planned, **fields)
        values = {"reward": 0.5, "trained_tokens": 100.0, "entropy": 1.0, "grad_norm": 0.1, "staleness_mean": 0.0}
        done = facts.envelope(at_us=(sequence + 1) * 60 * SECOND_US, run_id=run_id)
        trained = BatchTrained(envelope=done, version=sequence + 1, metrics={**values, **metrics}, **fields)
        published: WeightsPublished = replace(weights(sequence + 1, run_id=run_id), sequence=sequence)
        self.report(plan, trained, published)
        groups = [each.record.group_id for each in selection.chosen]
        self.planned |= {*groups}
        return groups

    def skip(self, groups: Sequence[str], reason: str, run_id: str = RUN) -> None:
        """Groups that the run will never train."""
        self.planned |= {*groups}
        self.report(BatchSkipped(envelope=facts.envelope(), run_id=run_id, group_ids=tuple(groups), reason=reason))


def four_batches(**fields: str) -> TrainingStage:
    """Ten groups, of which a run has trained eight, its reward rising from 0 to .75."""
    stage = TrainingStage([fact for n in range(10) for fact in group(f"g{n}", [0.0, 1.0], at_us=n, **fields)])
    stage.begin('{"learning_rate": 0.1}')
    for sequence in range(4):
        stage.train(sequence, LAX, reward=sequence / 4)
    return stage


def world(names: Collection[str] = ("a", "b", "c", "d", "e")) -> TrainingStage:
    """Two groups are trained, one is skipped, one is ready, one short, one of equal returns; version 1 sampled `next`."""
    first, second, *_ = names
    stage = TrainingStage(
        [
            *group(first, [0.0, 1.0], at_us=1),
            *group(second, [1.0, 0.0], at_us=2),
            *group("gone", [0.0, 1.0], at_us=3),
        ]
    )
    stage.begin('{"micro_batch_tokens_max": 64}')
    assert stage.train(0) == [first, second]
    stage.skip(["gone"], "too_stale")
    stage.fill(
        [
            *group("next", [0.0, 1.0], version=1, at_us=4),
            *group("equal", [1.0, 1.0], version=1, at_us=5),
            *group("short", [1.0], version=1, at_us=6, expected_size=2),
            *group("late", [0.0, 1.0], version=1, at_us=7),
            facts.curated("next", "t0", "c0", quality=0.2, who="scorer/a"),
        ]
    )
    return stage
