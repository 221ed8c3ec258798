"""Which starts of an engine are given up, and what counts as moving."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from claw_r1.rollout.errors import ServerDied
from claw_r1.rollout.process.activity import Activity, StartPatience, activity_of
from claw_r1.rollout.rewards.settings import RewardServerSettings
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.runtime.processes import child
from claw_r1.runtime.processes.reaper import KILL_NOW, reaped

LIMITS = {"start_timeout_s": 1000.0, "start_quiet_s": 300.0}
EVERY_S = 50


def ended_after(seen: Sequence[Activity]) -> tuple[int, str] | None:
    """Seconds and words of the end of a start that shows this, a look each `EVERY_S`."""
    patience = StartPatience(RolloutSettings(model=Path(), model_id="m", **LIMITS), 0.0)
    for number, activity in enumerate(seen):
        try:
            patience.look(activity, number * EVERY_S)
        except ServerDied as error:
            return number * EVERY_S, str(error)
    return None


@pytest.mark.parametrize(
    ("cpu_s", "log_bytes", "at_s", "says"),
    [
        (lambda n: 5.0, lambda n: 9, 350, "--start-quiet-s"),
        (lambda n: n * 0.01, lambda n: 9, 350, "--start-quiet-s"),  # as a process that waits for ever
        (lambda n: n * 0.1, lambda n: 9, 1050, "--start-timeout-s"),
        (lambda n: 5.0, lambda n: n // 4, 1050, "--start-timeout-s"),
        (lambda n: 5.0 + (n > 10), lambda n: 9, 350, "--start-quiet-s"),
    ],
)
def test_a_start_ends_when_nothing_moves_or_at_the_far_bound(cpu_s, log_bytes, at_s, says) -> None:  # type: ignore[no-untyped-def]  # cases of any type
    """Processor time or the log, either is enough; the message names the setting that ended it."""
    end = ended_after([Activity(cpu_s(number), log_bytes(number)) for number in range(40)])
    assert end is not None
    assert end[0] == at_s
    assert says in end[1]


def test_every_server_of_ours_waits_as_long() -> None:
    """`claw rollout` and `claw rewards serve` have both bounds, the far one far away."""
    for settings in (RolloutSettings, RewardServerSettings):
        bounds = {name: settings.model_fields[name].default for name in LIMITS}
        assert bounds == {"start_timeout_s": 3600, "start_quiet_s": 300}


@pytest.mark.process
def test_the_processor_time_is_that_of_all_descendants(tmp_path: Path) -> None:
    """A grandchild below a reaper that computes, as vLLM's engine does; the log's length beside it. Nobody: nothing."""
    busy = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    log = tmp_path / "log"
    process = child.start(reaped([sys.executable, "-c", busy]), death_signal=KILL_NOW, stdin=subprocess.DEVNULL)
    try:
        ends_at = time.monotonic() + 60
        while activity_of(process.pid, log).cpu_s < 1:  # more than three interpreters take to start
            assert time.monotonic() < ends_at
            time.sleep(0.05)
    finally:
        child.end(process, (KILL_NOW, 10))
    log.write_text("words")
    assert activity_of(process.pid, log) == Activity(0.0, 5)
