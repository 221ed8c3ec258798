"""Policy and critic together: who is trained when, and what a checkpoint holds."""

import math

import pytest

from claw_r1.trainer.compose import learner_of
from claw_r1.trainer.errors import CheckpointInvalid
from claw_r1.trainer.learn.examples import LearnerBatch
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.weights.manifest import WeightsManifest
from tests.trainer.learn.models.test_critic import batch

pytestmark = pytest.mark.process


def learner(model_dir, **changes):
    fields = {
        "model_dir": model_dir,
        "model_id": "tiny",
        "run_id": "run",
        "out_dir": "out",
        "learning_rate": 1e-3,
        "spec": {"algorithm": "gae"},
        **changes,
    }
    return learner_of(TrainerSettings(**fields))


def of(sequence, examples=None):
    return LearnerBatch(examples or batch(sequence), version=sequence, seed=7, sequence=sequence, group_sizes=(1,) * 8)


def weights(subject):
    return WeightsManifest.of(subject.named_tensors()).digest


@pytest.mark.parametrize("stage", [0, 2])
def test_the_first_batches_may_be_the_critics_alone(model_dir, stage):
    """warmup_batches: the policy keeps every bit and the metrics say so; then both move."""
    subject = learner(model_dir, critic={"warmup_batches": 2}, zero_stage=stage)
    before, critics = weights(subject), {subject.hashed_critic()}
    for sequence in range(2):
        metrics = subject.train(of(sequence))
        critics.add(subject.hashed_critic())
        assert metrics["critic_warmup"] == 1
        assert "grad_norm" not in metrics
        assert weights(subject) == before
    assert len(critics) == 3
    assert "critic_warmup" not in subject.train(of(2))
    assert weights(subject) != before
    assert subject.hashed_critic() not in critics


def test_a_critic_that_begins_in_the_middle_of_a_run_warms_up_there(model_dir, tmp_path):
    """A checkpoint from before it had any: its first batches are counted from there, after another restart, too."""
    without, warming = learner(model_dir, spec={"algorithm": "grpo"}), {"warmup_batches": 2}
    without.train(of(0))
    without.save(tmp_path / "0", {})()
    begun, resumed = learner(model_dir, critic=warming), learner(model_dir, critic=warming)
    begun.load(tmp_path / "0")
    before = weights(begun)
    assert begun.train(of(4))["critic_warmup"] == 1
    begun.save(tmp_path / "4", {})()
    resumed.load(tmp_path / "4")
    for subject in (begun, resumed):
        assert subject.train(of(5))["critic_warmup"] == 1
        assert weights(subject) == before
        assert "critic_warmup" not in subject.train(of(6))


@pytest.mark.parametrize("stage", [0, 1])
def test_where_the_policys_step_is_skipped_so_is_the_critics(model_dir, stage):
    """A reward that is no number changes no byte of either."""
    subject = learner(model_dir, zero_stage=stage)
    subject.train(of(0))
    before = weights(subject), subject.hashed_critic()
    bad = batch(1)
    bad[0].rewards[-1] = math.nan
    metrics = subject.train(of(1, bad))
    assert metrics["step_skipped"] == 1
    assert "value_loss" not in metrics
    assert (weights(subject), subject.hashed_critic()) == before


def test_a_batch_of_which_nothing_is_trained_changes_nothing(model_dir):
    """Every response of it was empty: no row, no value, no step of either."""
    subject = learner(model_dir, reference={"coefficient": 0.1})
    subject.train(of(0))
    before = weights(subject), subject.hashed_critic()
    metrics = subject.train(LearnerBatch([], version=1, seed=7, sequence=1, group_sizes=(1,)))
    assert metrics["tokens"] == 0
    assert (weights(subject), subject.hashed_critic()) == before


def test_minibatches_and_epochs_are_those_of_the_policy(model_dir):
    """As many steps of the critic, and the returns are those from before the first of them."""
    once, often = learner(model_dir), learner(model_dir, objective={"minibatches": 2, "epochs": 3})
    first, several = once.train(of(0)), often.train(of(0))
    assert several["return_mean"] == first["return_mean"]
    assert several["optimizer_steps"] == 6
    assert several["value_loss"] < first["value_loss"]
    assert often.hashed_critic() != once.hashed_critic()


@pytest.mark.parametrize("stage", [0, 2])
def test_a_checkpoint_holds_both(model_dir, tmp_path, stage):
    """Loaded into a fresh learner, the next batch gives the same bytes of both; without the critic's part it is refused."""
    subject, fresh = learner(model_dir, zero_stage=stage), learner(model_dir, zero_stage=stage)
    subject.train(of(0))
    assert subject.critic_digest == "", "a batch alone is no reason to read every byte of the critic"
    subject.save(tmp_path, {"note": 7})()
    assert subject.critic_digest != ""
    assert fresh.load(tmp_path) == {"note": 7}
    assert fresh.hashed_critic() == subject.hashed_critic()
    assert subject.train(of(1)) == fresh.train(of(1))
    assert (weights(fresh), fresh.hashed_critic()) == (weights(subject), subject.hashed_critic())
    (tmp_path / "critic").rename(tmp_path / "gone")
    with pytest.raises(CheckpointInvalid):
        fresh.load(tmp_path)


def test_kl_in_the_reward_moves_the_returns(model_dir):
    """What the divergence from the reference costs is taken off, token by token, before advantages are made."""
    plain = learner(model_dir, critic={"lam": 1.0}).train(of(0))
    charged = learner(
        model_dir, critic={"lam": 1.0}, reference={"coefficient": 0.1, "place": "reward", "kl": "k2"}
    ).train(of(0))
    assert charged["return_mean"] < plain["return_mean"] - 0.01
    assert charged["reference_kl_k3"] > 0
