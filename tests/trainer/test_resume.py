"""Killed between any two steps, a run trains every batch once and ends with the weights of a run that was not killed."""

import json
import multiprocessing
import signal
from collections import Counter
from dataclasses import dataclass

import pytest

from claw_r1.datapool.batch.plan import groups_of
from claw_r1.schemas.events import BatchAssembled, BatchTrained, RunEnded, RunStarted, WeightsPublished
from claw_r1.trainer.dependencies import Milestone
from tests.children import HEAVY_START_S
from tests.trainer import incarnation
from tests.trainer.incarnation import BATCHES

pytestmark = pytest.mark.slow
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["tests.trainer.incarnation", "deepspeed", "peft", "transformers.models.qwen3.modeling_qwen3"]
)
FIRST_TIME = [
    (Milestone.STARTED, 1),
    (Milestone.PLANNED, 1),
    (Milestone.TRAINED, 1),
    (Milestone.KEPT, 1),
    (Milestone.STAGED, 1),
    (Milestone.PUBLISHED, 1),
    (Milestone.EXPORTED, 1),
]
LATER = [
    (Milestone.PLANNED, 2),
    (Milestone.TRAINED, 2),
    (Milestone.KEPT, 2),
    (Milestone.STAGED, 2),
    (Milestone.PUBLISHED, 1),
    (Milestone.ENDED, 1),
]
FAR_FROM_CHECKPOINTS = [
    (Milestone.PUBLISHED, 2),
    (Milestone.TRAINED, 1),
    (Milestone.STAGED, 2),
    (Milestone.PLANNED, 1),
    (Milestone.STAGED, 2),
]


@dataclass
class Story:
    """What a run left behind."""

    transactions: list
    out_dir: object

    def of(self, kind):
        return [event for events in self.transactions for event in events if isinstance(event, kind)]

    def digest_by_version(self):
        return {event.version: event.digest for event in self.of(WeightsPublished)}


def lives(folder, model_dir, deaths, **changes):
    """Incarnation after incarnation, one per death, and a last one that lives to the end."""
    chosen = incarnation.settings(folder / "out", model_dir, **changes)
    for dies_at in [*deaths, None]:
        process = PROCESSES.Process(target=incarnation.live, args=(chosen, folder / "log", dies_at))
        assert exit_code(process) == (-signal.SIGKILL if dies_at else 0), dies_at
    events = incarnation.committed(folder / "log")
    return Story(events, folder / "out")


def exit_code(process):
    """Started, and waited for; None when it would not end, and then it is killed."""
    process.start()
    process.join(HEAVY_START_S)
    code = process.exitcode
    process.kill()
    return code


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, model_dir):
    return lives(tmp_path_factory.mktemp("undisturbed"), model_dir, [])


@pytest.mark.parametrize(
    ("deaths", "checkpoint_every"),
    [(FIRST_TIME, 1), (LATER, 1), (FAR_FROM_CHECKPOINTS, 4)],
    ids=["first-time", "later", "far-from-checkpoints"],
)
def test_a_killed_run_is_the_run_that_was_not_killed(tmp_path, model_dir, undisturbed, deaths, checkpoint_every):
    """Same plans, each batch trained once, same bytes per version, whatever died when."""
    story = lives(tmp_path, model_dir, deaths, checkpoint_every=checkpoint_every)
    assert [event.sequence for event in story.of(BatchTrained)] == list(range(BATCHES))
    assert [(e.sequence, e.version) for e in story.of(BatchTrained)] == [(n, n + 1) for n in range(BATCHES)]
    assert [groups_of(plan) for plan in story.of(BatchAssembled)] == [
        groups_of(p) for p in undisturbed.of(BatchAssembled)
    ]
    assert max(Counter(name for plan in story.of(BatchAssembled) for name in groups_of(plan)).values()) == 1
    assert len({(e.version, e.digest) for e in story.of(WeightsPublished)}) == BATCHES + 1
    assert story.digest_by_version() == undisturbed.digest_by_version()
    assert len(set(undisturbed.digest_by_version().values())) == BATCHES + 1
    assert len(story.of(RunEnded)) == 1


def test_a_killed_run_with_adapters_is_the_run_that_was_not_killed(tmp_path, model_dir):
    """With a reference, which is the policy without them; the last export has the adapter of its version."""
    changes = {"lora": {"rank": 4}, "reference": {"coefficient": 0.1}, "learning_rate": 1e-3, "batches_max": 3}
    calm = lives(tmp_path / "calm", model_dir, [], **changes)
    deaths = [(Milestone.TRAINED, 2), (Milestone.KEPT, 1), (Milestone.PUBLISHED, 1)]
    story = lives(tmp_path / "killed", model_dir, deaths, **changes)
    assert [event.sequence for event in story.of(BatchTrained)] == [0, 1, 2]
    assert story.digest_by_version() == calm.digest_by_version()
    assert len(set(calm.digest_by_version().values())) == 4
    adapters = [sorted(each.out_dir.glob("hf/00000003-*/adapter/*.safetensors")) for each in (calm, story)]
    assert len({path.read_bytes() for paths in adapters for path in paths}) == 1
    assert all(len(paths) == 1 for paths in adapters)


def test_every_incarnation_says_that_it_started(tmp_path, model_dir):
    """RunStarted counts up, and each incarnation after the first offers the current version under its own epoch."""
    story = lives(tmp_path, model_dir, [(Milestone.PUBLISHED, 2), (Milestone.STARTED, 1)])
    assert [event.incarnation for event in story.of(RunStarted)] == [1, 2, 3]
    second = [e for e in story.of(WeightsPublished) if e.version == 2]
    assert len({event.epoch for event in second}) == 3
    assert len({event.digest for event in second}) == 1


def test_a_plan_is_committed_before_and_the_result_with_its_weights(undisturbed):
    """The order in the log: start with version 0, then per batch the plan alone, then weights and batch together.

    A transaction of its own says that the export of a version is on disk, some time after the version's.
    """
    alone = [events for events in undisturbed.transactions if [type(e) for e in events] == [WeightsPublished]]
    assert [(event.version, event.checkpoint_uri is not None) for (event,) in alone] == [(4, True)]
    rest = [events for events in undisturbed.transactions if events not in alone]
    assert undisturbed.transactions.index(alone[0]) > undisturbed.transactions.index(rest[2 * 4])
    kinds = [[type(event).__name__ for event in events] for events in rest]
    batch = [["BatchAssembled"], ["WeightsPublished", "BatchTrained"]]
    assert kinds == [["RunStarted", "WeightsPublished"], *(batch * BATCHES), ["WeightsPublished", "RunEnded"]]


def test_exports_are_named_in_the_events(undisturbed, model_dir):
    """Version 0, every fourth and the last one can be read from disk, with the published digest."""
    from claw_r1.weights.manifest import WeightsManifest
    from tests.weights.tensors import read

    named = {e.version: e for e in undisturbed.of(WeightsPublished) if e.checkpoint_uri}
    assert sorted(named) == [0, 4, BATCHES]
    for event in named.values():
        specs = WeightsManifest.from_json(
            {
                "digest": event.digest,
                "tensors": [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in event.manifest],
            }
        )
        assert len(read(event.checkpoint_uri, specs)) == len(event.manifest)


def test_metrics_have_one_line_per_batch(tmp_path, model_dir):
    """metrics.jsonl is derived from the log: a kill between commit and line loses nothing and doubles nothing."""
    story = lives(tmp_path, model_dir, [(Milestone.STAGED, 2), (Milestone.PUBLISHED, 2)])
    lines = [json.loads(line) for line in (story.out_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["batch"] for line in lines] == list(range(BATCHES))
    assert all(
        {"reward", "entropy", "kl_k3", "ess", "clip_share", "staleness_max", "wait_s"} <= line.keys() for line in lines
    )


def test_other_bytes_take_another_version(tmp_path, model_dir):
    """A replay that cannot repeat the published bytes (here: another learning rate) never reuses their number."""
    first = incarnation.settings(tmp_path / "out", model_dir, checkpoint_every=100, batches_max=2)
    changed = {"learning_rate": 2e-2, "allow_change": ("learning_rate",)}
    second = incarnation.settings(tmp_path / "out", model_dir, checkpoint_every=100, batches_max=3, **changed)
    for chosen, dies_at in ((first, (Milestone.PUBLISHED, 2)), (second, None)):
        process = PROCESSES.Process(target=incarnation.live, args=(chosen, tmp_path / "log", dies_at))
        assert exit_code(process) == (-signal.SIGKILL if dies_at else 0)
    events = incarnation.committed(tmp_path / "log")
    story = Story(events, tmp_path / "out")
    assert [(e.sequence, e.version) for e in story.of(BatchTrained)] == [(0, 1), (1, 2), (2, 4)]
    assert story.of(BatchAssembled)[-1].version == 3
    assert len({(e.version, e.digest) for e in story.of(WeightsPublished)}) == 5
