"""One planned batch again: the numbers of the run, and nothing of it in the log or on disk."""

import dataclasses
import json
import math

import pytest
import torch

from claw_r1.schemas.events import BatchTrained
from claw_r1.schemas.topics import BATCHES, WEIGHTS
from claw_r1.trainer.errors import SettingsInvalid, Stopped
from claw_r1.trainer.replay_batch import check_planned, replay
from claw_r1.trainer.run import TrainingRun
from tests.trainer.incarnation import settings
from tests.trainer.pooled import group
from tests.trainer.runs_in_memory import events, memory_journal, world_of

BATCHES_TRAINED = 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory, model_dir):
    """A run of four batches with checkpoints of the last two."""
    chosen = settings(tmp_path_factory.mktemp("run"), model_dir, batches_max=BATCHES_TRAINED)
    history = [e for n in range(2 * BATCHES_TRAINED) for e in group(f"g{n}", [0.0, 1.0, 1.0, 0.0], at_us=n)]
    log, dependencies = world_of(chosen, history)
    TrainingRun(chosen, dependencies).run()
    return chosen, log, history


def again(finished, sequence, change=lambda learner: learner, **changes):
    chosen, log, history = finished
    _, world = world_of(chosen, history, log=log)
    return replay(
        chosen.model_copy(update=changes),
        sequence,
        history=memory_journal(log).history(),
        facts=world.facts,
        learner=change(world.learner),
    )


@pytest.mark.parametrize(("sequence", "checkpoint", "before"), [(3, 2, []), (1, None, [0])])
def test_a_batch_is_replayed_to_the_bit(finished, sequence, checkpoint, before):
    """From the newest checkpoint before it, else from the initial weights; the published metrics and bytes come out."""
    _, log, _ = finished
    ends = log.end_offsets([BATCHES, WEIGHTS])
    answer = again(finished, sequence)
    assert (answer["checkpoint"], answer["trained_before"]) == (checkpoint, before)
    assert answer["weights_before"]["same"] is answer["weights_after"]["same"] is True
    assert answer["differ"] == {}
    published = events(log, BatchTrained)[sequence].metrics
    assert answer["published"] == published
    assert answer["metrics"]["loss"] == published["loss"]
    assert log.end_offsets([BATCHES, WEIGHTS]) == ends
    assert json.loads(json.dumps(answer, allow_nan=False)) == json.loads(json.dumps(answer))


def test_a_batch_of_adapters_is_replayed_to_the_bit(tmp_path, model_dir):
    """From a checkpoint that holds them alone, and from the initial weights."""
    chosen = settings(tmp_path, model_dir, batches_max=3, lora={"rank": 4})
    history = [e for n in range(6) for e in group(f"g{n}", [0.0, 1.0, 1.0, 0.0], at_us=n)]
    log, dependencies = world_of(chosen, history)
    TrainingRun(chosen, dependencies).run()
    for sequence, checkpoint in ((2, 1), (0, None)):
        answer = again((chosen, log, history), sequence)
        assert answer["checkpoint"] == checkpoint
        assert answer["weights_before"]["same"] is answer["weights_after"]["same"] is True
        assert answer["differ"] == {}


def test_every_number_of_a_batch_stands_there(finished):
    """What was planned, and per row its ids and what each trained token had."""
    answer = again(finished, 3)
    assert [t["group_id"] for t in answer["plan"]["trajectories"]] == ["g6"] * 4 + ["g7"] * 4
    first = answer["examples"][0]
    assert first["call_ids"] == ["c0", "c1"]
    assert [first["ids"][at] for at in first["at"]] == [5, 6, 7, 8, 9]
    assert first["behaviour"] == [-3.0] * 5
    assert len(first["advantages"]) == len(first["scale"]) == 5
    ratio = [
        math.exp(own - engine)
        for row in answer["examples"]
        for own, engine in zip(row["proximal"], row["behaviour"], strict=True)
    ]
    assert sum(ratio) / len(ratio) == pytest.approx(answer["metrics"]["ratio_mean"], rel=1e-5)


def test_what_differs_is_named(finished):
    """Other settings are no reason to refuse: somebody may be looking for what they change."""
    answer = again(finished, 1, learning_rate=0.5)
    assert answer["settings_changed"] == {"learning_rate": (0.01, 0.5)}


class Broken:
    """A learner whose loss is no number."""

    def __init__(self, learner):
        self._learner = learner

    def __getattr__(self, name):
        return getattr(self._learner, name)

    def train(self, batch, before_micro_batch):
        examples = [dataclasses.replace(example, scale=example.scale * float("nan")) for example in batch.examples]
        return self._learner.train(dataclasses.replace(batch, examples=examples), before_micro_batch) | {
            "loss": torch.nan
        }


def test_a_number_that_is_none_stands_there_as_a_word(finished):
    """It is what somebody looks for, and JSON has none."""
    answer = again(finished, 3, change=Broken)
    assert answer["metrics"]["loss"] == "nan"
    assert answer["differ"]["loss"][1] == "nan"
    json.dumps(answer, allow_nan=False)


def test_a_replay_that_is_stopped_is_no_answer(finished):
    """It ends with a line and exit status 2, as everything that has no answer."""
    chosen, log, history = finished
    _, world = world_of(chosen, history, log=log)
    world.stop.set()
    with pytest.raises(Stopped):
        replay(
            chosen, 1, history=memory_journal(log).history(), facts=world.facts, learner=world.learner, stop=world.stop
        )


@pytest.mark.parametrize(("sequence", "words"), [(4, "its batches are 0 to 3"), (-1, "never planned")])
def test_a_batch_that_was_never_planned_is_refused(finished, sequence, words):
    """In one line that says which there are."""
    with pytest.raises(SettingsInvalid, match=words):
        check_planned(sequence, memory_journal(finished[1]).history(), "run")
