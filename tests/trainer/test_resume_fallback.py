"""A checkpoint that cannot be loaded: an older one is taken, and what was planned after it is trained again."""

import shutil

import pytest
import torch
from structlog.testing import capture_logs

from claw_r1.schemas.events import BatchTrained, WeightsPublished
from claw_r1.trainer.dependencies import Milestone
from claw_r1.trainer.errors import CheckpointInvalid
from claw_r1.trainer.run import TrainingRun
from tests.trainer.incarnation import settings
from tests.trainer.pooled import group
from tests.trainer.runs_in_memory import events, world_of
from tests.trainer.tiny import make_model

BATCHES = 3


def history():
    return [e for n in range(2 * (BATCHES + 1)) for e in group(f"g{n}", [0.0, 1.0, 1.0, 0.0], at_us=n)]


def stopped_after(chosen, batches, log=None):
    """The log of a run that was stopped once it had published so many batches."""
    seen = []

    def reached(milestone):
        seen.extend([milestone] if milestone == Milestone.PUBLISHED else [])
        if len(seen) == batches:
            dependencies.stop.set()

    log, dependencies = world_of(chosen, history(), reached, log=log)
    assert TrainingRun(chosen, dependencies).run() == "stopped"
    return log


def break_(checkpoint):
    (states,) = checkpoint.glob("state/*model_states.pt")
    states.write_bytes(states.read_bytes()[:100])


def checkpoints(chosen):
    return sorted((chosen.out_dir / "checkpoints").iterdir())


def resumed(chosen, log):
    _, again = world_of(chosen, history(), log=log)
    with capture_logs() as lines:
        assert TrainingRun(chosen, again).run() == "finished"
    return lines


@pytest.mark.parametrize("changes", [{}, {"lora": {"rank": 4}}], ids=["weights", "adapter"])
def test_an_older_checkpoint_takes_the_place_of_one_that_cannot_be_loaded(tmp_path, model_dir, changes):
    """It says so, replays to the same bytes, trains no batch twice, and counts the broken one as a checkpoint no more."""
    chosen = settings(tmp_path, model_dir, batches_max=BATCHES, **changes)
    log = stopped_after(chosen, 2)
    break_(checkpoints(chosen)[-1])
    lines = resumed(chosen, log)
    assert [line["batch"] for line in lines if line["event"] == "checkpoint_unusable"] == [1]
    assert [line["batch"] for line in lines if line["event"] == "checkpoint_loaded"] == [0]
    assert not any(line["event"] == "replay_gave_other_bytes" for line in lines)
    assert [(e.sequence, e.version) for e in events(log, BatchTrained)] == [(n, n + 1) for n in range(BATCHES)]
    assert len({(e.version, e.digest) for e in events(log, WeightsPublished)}) == BATCHES + 1
    assert [path.name for path in checkpoints(chosen)] == ["00000000-1", "00000001-1.damaged", "00000002-2"]


@pytest.mark.parametrize("whose", ["state", "critic/state"])
def test_one_wrong_moment_is_a_damage(tmp_path, model_dir, whose):
    """A number of AdamW's, of policy or critic, in a file that reads well: it would change every later version in silence."""
    spec = {"algorithm": "gae", "groups_per_batch": 2, "group_size": 4, "staleness_max": 100}
    chosen = settings(tmp_path, model_dir, batches_max=BATCHES, spec=spec)
    log = stopped_after(chosen, 2)
    (states,) = checkpoints(chosen)[-1].glob(f"{whose}/*model_states.pt")
    content = torch.load(states, weights_only=False)
    moments = next(iter(content["optimizer"]["state"].values()))
    moments["exp_avg"].view(-1)[0] += 1.0
    torch.save(content, states)
    lines = resumed(chosen, log)
    (unusable,) = [line for line in lines if line["event"] == "checkpoint_unusable"]
    assert "holds other bytes than were written" in unusable["error"]
    assert not any(line["event"].startswith("replay_gave") for line in lines)
    assert len({(e.version, e.digest) for e in events(log, WeightsPublished)}) == BATCHES + 1


def test_adapters_of_another_base_are_no_checkpoint_of_this_one(tmp_path, model_dir):
    """The base is not in the checkpoint: the digest of what both make together is what tells."""
    other = make_model(tmp_path / "other", seed=5)
    chosen = settings(tmp_path, other, batches_max=BATCHES, lora={"rank": 4})
    log = stopped_after(chosen, 2)
    shutil.copyfile(model_dir / "model.safetensors", other / "model.safetensors")
    _, again = world_of(chosen, history(), log=log)
    with pytest.raises(CheckpointInvalid, match=r"00000001-1 holds other weights than it was written with"):
        TrainingRun(chosen, again).run()


def test_without_a_usable_checkpoint_nothing_is_set_aside(tmp_path, model_dir):
    """One line names them and says what to do: move them away, and everything is trained again to the same bytes."""
    chosen = settings(tmp_path, model_dir, batches_max=BATCHES)
    log = stopped_after(chosen, 2)
    for path in checkpoints(chosen):
        break_(path)
    _, again = world_of(chosen, history(), log=log)
    with pytest.raises(CheckpointInvalid, match=r"00000001-1, 00000000-1.*move these away"):
        TrainingRun(chosen, again).run()
    for path in checkpoints(chosen):
        path.rename(tmp_path / path.name)
    resumed(chosen, log)
    assert len({(e.version, e.digest) for e in events(log, WeightsPublished)}) == BATCHES + 1


def test_plans_that_the_kept_checkpoint_would_have_spared_are_read_once_more(tmp_path, model_dir):
    """The history forgot them for a checkpoint of a batch that was given up, say."""
    chosen = settings(tmp_path, model_dir, batches_max=BATCHES, checkpoints_kept=1)
    log = stopped_after(chosen, 2)
    _, again = world_of(chosen, history(), log=log)
    opened = again.journal.open
    again.journal.open = lambda plans_after: _given_up(opened(plans_after))
    with capture_logs() as lines:
        assert TrainingRun(chosen, again).run() == "finished"
    assert [line["batch"] for line in lines if line["event"] == "batch_replayed"] == [0]


def _given_up(history):
    assert history.plans == {}
    history.given_up.add(1)
    return history
