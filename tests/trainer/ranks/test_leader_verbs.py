"""A verb ends the same way on every rank."""

import os

import pytest

from claw_r1.trainer.errors import CheckpointInvalid, Stopped
from tests.trainer import incarnation
from tests.trainer.ranks.test_leader import batch
from tests.trainer.tiny import make_model

pytestmark = [pytest.mark.process, pytest.mark.slow]


def live_through_errors(learner, folder):
    """Each of them leaves all ranks where the next verb finds them together."""
    whole, damaged = folder / "whole", folder / "damaged"
    for directory in (whole, damaged):
        learner.save(directory, {"note": 7})()
    calls = []

    def stop_at_second():
        calls.append(1)
        if len(calls) == 2:
            raise Stopped("asked to stop")

    with pytest.raises(Stopped):
        learner.train(batch(0), stop_at_second)
    (part,) = damaged.glob("*/*zero_pp_rank_1_*.pt")
    os.truncate(part, part.stat().st_size // 2)
    with pytest.raises(CheckpointInvalid, match="zero_pp_rank_1_"):
        learner.load(damaged)
    assert learner.load(whole)["note"] == 7
    learner.train(batch(0))
    blocked = folder / "blocked"
    (blocked / part.relative_to(damaged)).mkdir(parents=True)
    with pytest.raises(OSError, match="rank 1: "):
        learner.save(blocked, {})
    whole.with_name("file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        learner.save(whole.with_name("file") / "no folder", {})()
    assert len(dict(learner.named_tensors())) == 24
    next(learner.named_tensors())  # and no further
    learner.train(batch(1))
    (folder / "done").touch()


def test_errors_are_everybodys(walk, tmp_path):
    """A stop before a micro-batch, a damaged part, a disk that takes no part of one rank or nothing at all, tensors that nobody reads on."""
    model_dir = make_model(tmp_path / "model")
    settings = incarnation.settings(
        tmp_path / "out", model_dir, zero_stage=2, micro_batch_tokens_max=24, device="cpu", ranks=2
    )
    walk(live_through_errors, settings, tmp_path)
    assert (tmp_path / "done").exists()
