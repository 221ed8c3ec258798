"""Who is alive."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from claw_r1.runtime.processes.process_identity import ProcessId
from tests.patience import until


def test_a_process_is_alive_until_its_last_thread_is_gone() -> None:
    """A killed broker holds its port until then: whoever took the zombie for dead gave the next broker another port."""
    leaves = "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(10,)).start()\n"
    leaves += "ctypes.CDLL(None).pthread_exit(None)"
    with subprocess.Popen([sys.executable, "-S", "-c", leaves]) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        until(lambda: ") Z " in stat.read_text())
        here = ProcessId.of(process.pid)
        assert here is not None
        assert not here.wait(0)
        here.signal(signal.SIGKILL)
        assert here.wait(10)


def test_an_identity_outlives_a_change_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the boot, seen from a clock that was set, is another one; the process is the same."""
    before = ProcessId.of(os.getpid())
    monkeypatch.setattr(psutil, "boot_time", lambda: 0.0)
    assert ProcessId.of(os.getpid()) == before


def test_the_same_pid_with_another_start_is_another_process(tmp_path: Path) -> None:
    """A recycled pid is neither alive, nor signalled, nor loaded."""
    here = ProcessId.of(os.getpid())
    assert here is not None
    assert here == ProcessId.of(os.getpid())
    here.save(tmp_path / "here")
    assert ProcessId.load(tmp_path / "here") == here
    earlier = replace(here, started_ticks=here.started_ticks - 1)
    assert not earlier.alive
    earlier.signal(signal.SIGKILL)
    earlier.save(tmp_path / "earlier")
    assert ProcessId.load(tmp_path / "earlier") is None


def test_the_start_is_the_kernels_own_number() -> None:
    """Field 22 of `/proc/PID/stat`, counted from boot: it stays what it is when somebody sets the clock."""
    here = ProcessId.of(os.getpid())
    assert here is not None
    assert here.started_ticks == int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
