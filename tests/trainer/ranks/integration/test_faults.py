"""A rank that stands still ends all of them, soon, and one line says which it was; for those that die: test_resume."""

import os
import signal

import pytest

from tests.children import HEAVY_START_S
from tests.patience import PATIENCE_S, until
from tests.trainer import incarnation
from tests.trainer.ranks.crew import crew, ended
from tests.trainer.ranks.test_leader import batch
from tests.trainer.tiny import make_model

pytestmark = [pytest.mark.process, pytest.mark.slow]


def train_without_end(learner, path):
    number = 0
    while True:
        learner.train(batch(number))
        number += 1
        path.write_text(str(number))


def test_a_rank_that_stands_still_is_named_and_ends_all(tmp_path):
    """Stopped in the middle of training, rank 0 of one crew and rank 1 of another: all are gone soon, none with exit code 0."""
    model_dir = make_model(tmp_path / "model")
    crews = []
    for victim in (0, 1):
        folder = tmp_path / str(victim)
        settings = incarnation.settings(folder / "out", model_dir, zero_stage=2, device="cpu", ranks=2)
        crews.append(crew(folder, train_without_end, settings, folder / "progress"))
    processes = [process for each in crews for process in each]
    try:
        for process in processes:
            process.start()
        for victim, each in enumerate(crews):
            until((tmp_path / str(victim) / "progress").exists, "a first batch", patience_s=HEAVY_START_S)
            os.kill(each[victim].pid, signal.SIGSTOP)
        codes = [ended(each, PATIENCE_S) for each in crews]
    finally:
        for process in processes:
            process.kill()
    assert codes == [[-signal.SIGKILL, 1], [1, -signal.SIGKILL]]
    for victim in (0, 1):
        said = (tmp_path / str(victim) / f"{1 - victim}.txt").read_text().splitlines()
        (line,) = [each for each in said if each.startswith("trainer:")]
        assert f"rank {victim} " in line
