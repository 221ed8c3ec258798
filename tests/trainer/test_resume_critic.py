"""PPO with a critic, killed: the bytes of policy and critic are those of a run that was not."""

import pytest

from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.schemas.events import BatchTrained
from claw_r1.trainer.dependencies import Milestone
from tests.trainer.test_resume import lives

pytestmark = pytest.mark.slow
PPO = {
    "spec": BatchSpec(algorithm="gae", groups_per_batch=2, group_size=4, staleness_max=100),
    "batches_max": 4,
    "learning_rate": 1e-3,
}


def test_a_replay_repeats_policy_and_critic_to_the_bit(tmp_path_factory, model_dir):
    """Killed between train and keep, and between two checkpoints: what is trained again gives the same values, so the same
    advantages, so the same bytes; the log names the digests of both."""
    undisturbed = lives(tmp_path_factory.mktemp("undisturbed"), model_dir, [], **PPO)
    deaths = [(Milestone.TRAINED, 2), (Milestone.PUBLISHED, 2)]
    killed = lives(tmp_path_factory.mktemp("killed"), model_dir, deaths, checkpoint_every=3, **PPO)
    assert killed.digest_by_version() == undisturbed.digest_by_version()
    some, every = ({e.sequence: e.critic_digest for e in story.of(BatchTrained)} for story in (killed, undisturbed))
    assert len(set(every.values())) == PPO["batches_max"]
    assert {sequence: digest for sequence, digest in some.items() if digest} == {2: every[2]}, (
        "hashed with a checkpoint"
    )
    assert len(set(killed.digest_by_version().values())) == PPO["batches_max"] + 1
    assert all(event.metrics["value_loss"] > 0 for event in killed.of(BatchTrained))
