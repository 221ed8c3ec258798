"""A test that fails leaves no process behind."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import children
from tests.patience import until

pytestmark = pytest.mark.process

# Heeds no SIGTERM and has a child that heeds none either, like an engine that is told to end while it starts.
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(100)"
FAMILY = f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {DEAF!r}]); {DEAF}"


def test_who_does_not_listen_is_killed_with_all_it_started() -> None:
    """After `end` neither the process nor its child is there, though both ignore SIGTERM."""
    process = children.start([sys.executable, "-S", "-c", FAMILY], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
    assert len(family) == 2
    children.end(process, grace_s=0.2)
    until(lambda: all(children.is_gone(member) for member in family))


def test_what_a_leader_leaves_behind_is_ended_too() -> None:
    """A leader that ended by itself is no reason to let its children live."""
    leaves = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-S', '-c', {DEAF!r}], stdout=2).pid)"
    process = children.start([sys.executable, "-S", "-c", leaves], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    left = psutil.Process(int(process.stdout.read()))
    children.end(process)
    until(lambda: children.is_gone(left))


NOWHERE = "http://127.0.0.1:9/health"


def test_a_start_whose_process_ends_fails_at_once_with_its_last_words(tmp_path: Path) -> None:
    """Nobody waits five minutes for a process that is gone."""
    ends = [sys.executable, "-S", "-c", "print('no such model')"]
    with pytest.raises(AssertionError, match="no such model"), children.serving(ends, NOWHERE, tmp_path / "log"):
        pass


def test_a_start_that_takes_too_long_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never answers and does not heed SIGTERM is gone when the wait for it has failed."""
    monkeypatch.setattr(children, "GRACE_S", 0.2)
    hangs = [sys.executable, "-S", "-u", "-c", f"import os; print(os.getpid()); {DEAF}"]
    with (
        pytest.raises(AssertionError, match="no answer within 1 s"),
        children.serving(hangs, NOWHERE, tmp_path / "log", start_s=1),
    ):
        pass
    pid = int((tmp_path / "log").read_text().splitlines()[0])
    until(lambda: not psutil.pid_exists(pid) or children.is_gone(psutil.Process(pid)))
