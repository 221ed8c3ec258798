"""A rank that stands still ends all of them, soon, and one line says which it was; for those that die: test_resume_ranks."""

import os
import signal
import time

import pytest

from tests.trainer import incarnation
from tests.trainer.ranks.crew import crew, ended
from tests.trainer.ranks.test_law import batch
from tests.trainer.tiny import make_model

pytestmark = [pytest.mark.process, pytest.mark.slow]
END_TIMEOUT_S = 30
START_TIMEOUT_S = 200


def train_without_end(learner, path):
    number = 0
    while True:
        learner.train(batch(number))
        number += 1
        path.write_text(str(number))


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_stands_still_is_named_and_ends_all(tmp_path, victim):
    """Stopped in the middle of training: all processes are gone within 30 s, none with exit code 0."""
    model_dir, progress = make_model(tmp_path / "model"), tmp_path / "progress"
    settings = incarnation.settings(tmp_path / "out", model_dir, zero_stage=2, device="cpu", ranks=2)
    processes = crew(tmp_path, train_without_end, settings, progress)
    try:
        for process in processes:
            process.start()
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not progress.exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        os.kill(processes[victim].pid, signal.SIGSTOP)
        began_s = time.monotonic()
        codes = ended(processes, END_TIMEOUT_S)
    finally:
        for process in processes:
            process.kill()
    assert time.monotonic() - began_s < END_TIMEOUT_S
    assert codes[1 - victim] == 1
    assert codes[victim] == -signal.SIGKILL
    lines = [line for line in (tmp_path / f"{1 - victim}.txt").read_text().splitlines() if line.startswith("trainer:")]
    assert len(lines) == 1
    assert f"rank {victim} " in lines[0]
