"""A trainer that is asked to stop leaves its last version where a worker finds it that starts without a trainer."""

import dataclasses

import torch
from structlog.testing import capture_logs

from claw_r1.schemas.events import WeightsPublished
from claw_r1.trainer.dependencies import Milestone
from claw_r1.trainer.errors import Stopped
from claw_r1.trainer.run import TrainingRun
from claw_r1.weights.manifest import WeightsManifest
from tests.trainer.incarnation import settings
from tests.trainer.runs_in_memory import events, stopping_at, two_batches, world_of
from tests.weights.tensors import read


def stopped(chosen, dependencies):
    with capture_logs() as lines:
        assert TrainingRun(chosen, dependencies).run() == "stopped"
    return [line["event"] for line in lines]


def test_the_last_version_is_exported_before_leaving(tmp_path, model_dir):
    """In the middle of the next batch, too: its event names a directory that holds its bytes. Again, and nothing is written."""
    chosen = settings(tmp_path, model_dir, batches_max=2, hf_every=100)
    log, dependencies = world_of(chosen, two_batches())
    stopping = stopping_at(Milestone.PUBLISHED, dependencies.stop)
    stopped(chosen, dataclasses.replace(dependencies, reached=stopping))
    last = events(log, WeightsPublished)[-1]
    assert (last.version, last.sequence) == (1, 0)
    tensors = [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in last.manifest]
    manifest = WeightsManifest.from_json({"digest": last.digest, "tensors": tensors})
    assert len(read(last.checkpoint_uri, manifest)) == len(tensors)
    _, again = world_of(chosen, two_batches(), log=log)
    lines = stopped(chosen, dataclasses.replace(again, reached=stopping_at(Milestone.STARTED, again.stop)))
    assert "exporting_before_leaving" not in lines
    assert events(log, WeightsPublished)[-1].checkpoint_uri == last.checkpoint_uri
    _, third = world_of(chosen, two_batches(), log=log)
    stopped(chosen, dataclasses.replace(third, reached=stopping_at(Milestone.PLANNED, third.stop)))
    assert events(log, WeightsPublished)[-1].checkpoint_uri == last.checkpoint_uri


class HalfWay:
    """A learner that is interrupted between two steps of one batch."""

    def __init__(self, learner):
        self._learner = learner

    def __getattr__(self, name):
        return getattr(self._learner, name)

    def train(self, batch, before_micro_batch):
        with torch.no_grad():
            next(iter(self._learner.named_tensors()))[1].add_(1.0)
        raise Stopped("between two steps")


def test_weights_in_the_middle_of_a_batch_are_no_version(tmp_path, model_dir):
    """They are not exported under the number of the version before, and a line says that nothing was."""
    chosen = settings(tmp_path, model_dir, hf_every=100)
    log, dependencies = world_of(chosen, two_batches())
    lines = stopped(chosen, dataclasses.replace(dependencies, learner=HalfWay(dependencies.learner)))
    assert "stopped_without_export" in lines
    assert [event.version for event in events(log, WeightsPublished)] == [0]
