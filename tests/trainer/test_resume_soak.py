"""`make soak N=50`: runs killed at random, again and again, with and without a critic, at every stage of ZeRO."""

import random
import signal

import pytest

from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.schemas.events import BatchTrained
from claw_r1.trainer.dependencies import Milestone
from tests.soak import SOAK
from tests.trainer import incarnation
from tests.trainer.test_resume import PROCESSES, Story, exit_code

pytestmark = [pytest.mark.soak, pytest.mark.skipif(SOAK == 0, reason="only in make soak")]
POINTS = (Milestone.PLANNED, Milestone.TRAINED, Milestone.KEPT, Milestone.STAGED, Milestone.PUBLISHED)
BATCHES = 4
DEATHS = 3


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, model_dir):
    """By algorithm and stage: the story of a run that nobody killed, made when it is first asked for."""
    stories = {}

    def of(algorithm, stage):
        if (algorithm, stage) not in stories:
            folder = tmp_path_factory.mktemp("undisturbed")
            stories[algorithm, stage] = story(folder, model_dir, algorithm, stage, 1, [])
        return stories[algorithm, stage]

    return of


def story(folder, model_dir, algorithm, stage, checkpoint_every, deaths):
    """A death that is not reached, because the run ends before, is none."""
    spec = BatchSpec(algorithm=algorithm, groups_per_batch=2, group_size=4, staleness_max=100)
    changes = {"spec": spec, "zero_stage": stage, "batches_max": BATCHES, "learning_rate": 1e-3}
    chosen = incarnation.settings(folder / "out", model_dir, checkpoint_every=checkpoint_every, **changes)
    for dies_at in [*deaths, None]:
        process = PROCESSES.Process(target=incarnation.live, args=(chosen, folder / "log", dies_at))
        assert exit_code(process) in ((-signal.SIGKILL, 0) if dies_at else (0,)), dies_at
    return Story(incarnation.committed(folder / "log"), folder / "out")


def critics(run):
    """Of the batches that had a checkpoint."""
    return {event.sequence: event.critic_digest for event in run.of(BatchTrained) if event.critic_digest}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(SOAK))
def test_a_run_killed_at_random_is_the_run_that_was_not(tmp_path, model_dir, undisturbed, seed):
    """Same versions, same bytes of policy and critic, each batch once."""
    dice = random.Random(seed)
    algorithm, stage = dice.choice(["grpo", "gae"]), dice.randrange(4)
    deaths = [(dice.choice(POINTS), dice.randint(1, 2)) for _ in range(DEATHS)]
    killed = story(tmp_path, model_dir, algorithm, stage, dice.randint(1, 3), deaths)
    assert [event.sequence for event in killed.of(BatchTrained)] == list(range(BATCHES))
    calm = undisturbed(algorithm, stage)
    assert killed.digest_by_version() == calm.digest_by_version(), (algorithm, stage, deaths)
    assert critics(killed).items() <= critics(calm).items(), (algorithm, stage, deaths)
