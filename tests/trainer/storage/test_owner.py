"""A trainer whose `out_dir` is another run's."""

import json
import shutil

import pytest
from msgspec.structs import replace

from claw_r1.schemas.events import BatchTrained, RunStarted
from claw_r1.trainer.errors import CheckpointForeign
from claw_r1.trainer.run import TrainingRun
from claw_r1.trainer.storage.checkpoints import Checkpoint
from claw_r1.trainer.storage.owner import check_own
from claw_r1.trainer.storage.reports import line
from tests import facts
from tests.trainer.incarnation import settings
from tests.trainer.journal.test_history import history_of, plan, trained
from tests.trainer.runs_in_memory import events, two_batches, world_of


@pytest.mark.parametrize("batches_before", [0, 1, 2], ids=["new", "behind", "as far"])
@pytest.mark.parametrize("checkpoints", [True, False], ids=["checkpoints", "curve-alone"])
def test_another_runs_folder_is_left_as_it_is(tmp_path, model_dir, batches_before, checkpoints):
    """However far the run came elsewhere before: the other's curve stays, and the log hears of no start."""
    theirs = settings(tmp_path / "theirs", model_dir, batches_max=2)
    _, dependencies = world_of(theirs, two_batches())
    TrainingRun(theirs, dependencies).run()
    curve = (theirs.out_dir / "metrics.jsonl").read_bytes()
    assert curve.count(b"\n") == 2
    if not checkpoints:
        shutil.rmtree(theirs.out_dir / "checkpoints")
    log, dependencies = world_of(theirs, two_batches())
    if batches_before:
        ours = settings(tmp_path / "ours", model_dir, run_id="second", batches_max=batches_before)
        _, dependencies = world_of(ours, two_batches(run="second"), log=log)
        TrainingRun(ours, dependencies).run()
    starts = len(events(log, RunStarted))
    ours = settings(theirs.out_dir, model_dir, run_id="second", batches_max=9)
    _, dependencies = world_of(ours, two_batches(run="second"), log=log)
    with pytest.raises(CheckpointForeign, match="run second never planned: give run second another out_dir"):
        TrainingRun(ours, dependencies).run()
    assert (theirs.out_dir / "metrics.jsonl").read_bytes() == curve
    assert len(events(log, RunStarted)) == starts
    assert len(events(log, BatchTrained)) == batches_before


def test_a_run_knows_its_own_folder(tmp_path):
    """Also where a kill cut the last line, the log lost the first batches, or the file says nothing."""
    own = [trained(sequence) for sequence in (0, 1, 2)]
    history = history_of([*(plan(sequence) for sequence in (0, 1, 2)), *own[1:]], "run")
    metrics = tmp_path / "metrics.jsonl"
    newest = Checkpoint(2, 1, tmp_path / "00000002-1")
    for text in (
        None,
        "",
        "".join(map(line, own)),
        line(own[2]) + '{"batch": 3, "ver',
        "3\nno JSON\n{}\n",
        json.dumps([]),
    ):
        if text is not None:
            metrics.write_text(text)
        check_own(tmp_path, newest, history)
        check_own(tmp_path, None, history)
    metrics.write_bytes(b"\xff")
    check_own(tmp_path, newest, history)


def test_a_batch_of_the_same_number_at_another_time_is_another_runs(tmp_path):
    """Numbers are taken by every run; the time in the event is one run's."""
    history = history_of([plan(0), trained(0)], "run")
    theirs = replace(trained(0), envelope=facts.envelope(at_us=1))
    (tmp_path / "metrics.jsonl").write_text(line(theirs))
    with pytest.raises(CheckpointForeign, match=r"metrics\.jsonl in .* never planned"):
        check_own(tmp_path, None, history)
