"""Killed between any two steps, whichever rank it is, a run on two ranks is the run that was not killed."""

import random
import signal
from collections import Counter
from functools import partial

import pytest

from claw_r1.datapool.batch.plan import groups_of
from claw_r1.schemas.events import BatchAssembled, BatchTrained, RunEnded, WeightsPublished
from claw_r1.trainer.dependencies import Milestone
from claw_r1.trainer.errors import CheckpointForeign
from tests.soak import SOAK, only_in_soak
from tests.trainer import incarnation
from tests.trainer.incarnation import BATCHES
from tests.trainer.ranks.crew import crew, kill_rank, run

pytestmark = pytest.mark.slow
DEATHS = [(milestone, 1) for milestone in Milestone]
FEW = [(Milestone.TRAINED, 1, 1), (Milestone.KEPT, 1, 0), (Milestone.PUBLISHED, 1, 1)]
"""Between what only the ranks know, what only their disks know, and what the log knows."""
MANY = [
    (Milestone.PLANNED, 1, 1), (Milestone.TRAINED, 1, 0), (Milestone.KEPT, 1, 1), (Milestone.STAGED, 1, 0),
    (Milestone.TRAINED, 1, 1), (Milestone.PUBLISHED, 1, 0), (Milestone.KEPT, 1, 0), (Milestone.TRAINED, 2, 1),
]  # fmt: skip
ALONE = (Milestone.EXPORTED, Milestone.ENDED)
"""Behind the last batch rank 0 asks nothing of the others: it may end the run before it sees that one of them is gone."""
LIVES_TIMEOUT_S = 200.0


def live(learner, chosen, folder, dies_at, victim):
    kill = {} if victim == 0 else {"kill": partial(kill_rank, folder, victim)}
    incarnation.live(chosen, folder / "log", dies_at, learner=learner, **kill)


def lives(folder, model_dir, deaths, **changes):
    """Incarnation after incarnation, one per death, (milestone, count, rank), and a last one that lives to the end; events."""
    chosen = incarnation.settings(folder / "out", model_dir, device="cpu", **changes)
    for death in [*deaths, None]:
        dies_at, victim = (None, 0) if death is None else (death[:2], death[2])
        codes = run(crew(folder, live, chosen, chosen, folder, dies_at, victim), LIVES_TIMEOUT_S)
        expected = [0 if death is None else 1] * chosen.ranks
        if death is not None:
            expected[victim] = -signal.SIGKILL
            for path in (folder / f"{rank}.txt" for rank in range(chosen.ranks) if rank != victim):
                lines = [line for line in path.read_text().splitlines() if line.startswith("trainer: ")]
                assert lines
                assert lines[-1].startswith(f"trainer: rank {victim} ")
        assert codes == expected, (death, [path.read_text()[-800:] for path in sorted(folder.glob("?.txt"))])
    return [event for events in incarnation.committed(folder / "log") for event in events]


def digests(events):
    return {event.version: event.digest for event in events if isinstance(event, WeightsPublished)}


def check(events, undisturbed):
    """Same plans, each batch trained once, same bytes per version."""
    plans = [groups_of(event) for event in events if isinstance(event, BatchAssembled)]
    assert plans == [groups_of(event) for event in undisturbed if isinstance(event, BatchAssembled)]
    assert max(Counter(name for plan in plans for name in plan).values()) == 1
    assert [e.sequence for e in events if isinstance(e, BatchTrained)] == list(range(BATCHES))
    assert digests(events) == digests(undisturbed)
    assert len([event for event in events if isinstance(event, RunEnded)]) == 1


def test_a_killed_run_on_two_ranks_is_the_run_that_was_not_killed(tmp_path, model_dir):
    """ZeRO 2: by turns the first rank dies and the second; at every milestone in `make soak`, and alone in test_resume."""
    undisturbed = lives(tmp_path / "undisturbed", model_dir, [], zero_stage=2, ranks=2)
    check(lives(tmp_path / "killed", model_dir, FEW, zero_stage=2, ranks=2), undisturbed)


@only_in_soak
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_every_stage_survives_kills_at_any_milestone(tmp_path, model_dir, stage, ranks):
    """Each milestone once, then random ones, an eighth of `N` per stage and number of ranks."""
    dice = random.Random(10 * stage + ranks)
    undisturbed = lives(tmp_path / "undisturbed", model_dir, [], zero_stage=stage, ranks=ranks)
    deaths = [(*death, 0 if death[0] in ALONE else dice.randrange(ranks)) for death in DEATHS]
    check(lives(tmp_path / "each", model_dir, deaths, zero_stage=stage, ranks=ranks), undisturbed)
    left = -(-SOAK // 8)
    while left > 0:
        count = min(left, 5)
        deaths = [(dice.choice(DEATHS[:6])[0], dice.randint(1, 2), dice.randrange(ranks)) for _ in range(count)]
        story = lives(tmp_path / f"random-{left}", model_dir, deaths, zero_stage=stage, ranks=ranks)
        check(story, undisturbed)
        left -= count


@only_in_soak
@pytest.mark.parametrize("stage", [0, 3])
def test_adapters_with_a_critic_survive_kills_on_two_ranks(tmp_path, model_dir, stage):
    """Eight deaths in nine incarnations, of either rank."""
    spec = {"algorithm": "gae", "groups_per_batch": 2, "group_size": 4, "staleness_max": 100}
    lora, reference = {"rank": 4}, {"coefficient": 0.1, "place": "reward"}
    changes = {
        "spec": spec,
        "lora": lora,
        "reference": reference,
        "learning_rate": 1e-3,
        "zero_stage": stage,
        "ranks": 2,
    }
    undisturbed = lives(tmp_path / "undisturbed", model_dir, [], **changes)
    killed = lives(tmp_path / "killed", model_dir, MANY, **changes)
    check(killed, undisturbed)
    critics = [
        {e.sequence: e.critic_digest for e in each if isinstance(e, BatchTrained)} for each in (killed, undisturbed)
    ]
    assert critics[0] == critics[1]


def leave_a_checkpoint(learner, directory):
    learner.save(directory, {})()


def change_ranks(learner, directory, path):
    """What a learner says that is given a checkpoint."""
    try:
        learner.load(directory)
        path.write_text("loaded")
    except CheckpointForeign as error:
        path.write_text(str(error))


@pytest.mark.parametrize(("stage", "answer"), [(0, "loaded"), (2, "start with --ranks 2")])
def test_another_number_of_ranks(walk, tmp_path, model_dir, stage, answer):
    """At stage 0 the state is whole and just loads; else the refusal names the way."""
    checkpoint, changes = tmp_path / "checkpoint", {"zero_stage": stage, "device": "cpu"}
    walk(leave_a_checkpoint, incarnation.settings(tmp_path / "out", model_dir, ranks=2, **changes), checkpoint)
    chosen = incarnation.settings(tmp_path / "out", model_dir, **changes)
    assert run(crew(tmp_path, change_ranks, chosen, checkpoint, tmp_path / "answer")) == [0]
    assert answer in (tmp_path / "answer").read_text()
