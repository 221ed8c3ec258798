"""A trainer and workers of other hosts, each a process with a carrier, whose engines are played; whatever of it a test may kill or stop.

A host is a folder of copies that knows nothing of the others, in memory.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from claw_r1.rollout.fetch import manifest_of
from claw_r1.weights.digests import BLAKE3, Digest
from tests import children
from tests.patience import FACTOR, PATIENCE_S, until
from tests.rollout import holds
from tests.rollout.carrying_trainer import events_of
from tests.rollout.supervise import HELD_CARRIER
from tests.soak import SOAK

ROOT = Path(__file__).parents[2]
CARRY_S = (20.0 if SOAK else 60.0) * FACTOR
"""From asking to verified, with a new group on a busy machine: three processes load torch. The soak waits it out in many of its cases."""
QUICK = {  # what is given up sooner than in production, so that a test sees it
    "CARRY_TIMEOUT_S": CARRY_S,
    "FETCH_TIMEOUT_S": 3,
    "OFFER_TIMEOUT_S": 3,
    "CONTROL_TIMEOUT_S": 5,
    "LOAD_TIMEOUT_S": 5,
    "HEALTH_INTERVAL_S": 0.2,
    "HEALTH_TIMEOUT_S": 3,
    "REPORT_INTERVAL_S": 0.2,
    "RETRY_INTERVAL_S": 0.5,
    "STOP_TIMEOUT_S": 1,
    "RESTARTS_MAX": 1000,
}
ENGINE, REAPER = "tests.rollout.scripted_vllm", "claw_r1.runtime.processes.reaper"
SLOW_S = 3 * PATIENCE_S
DESCRIPTORS_BESIDE = 2
"""Those of a report, or of a check of health, that is just under way."""


class CarriedFleet:
    """Runs from construction to `close`."""

    def __init__(self, folder: Path, names: Sequence[str] = ("a", "b")) -> None:
        self.folder, self.holds, self.wanted = folder, folder / "holds", 0
        self.holds.mkdir()
        (folder / "events").touch()
        self.want(0)
        self.is_sound = True
        """No test failed in the middle."""
        self.trainer = self.start_trainer()
        self.workers = {name: self.start_worker(name) for name in names}
        self._descriptors: dict[int, int] = {}

    def start_trainer(self) -> "subprocess.Popen[bytes]":
        """Anew, when the one before is dead."""
        self.trainer = self._started("trainer", "tests.rollout.carrying_trainer", str(self.folder))
        return self.trainer

    def start_worker(self, name: str) -> "subprocess.Popen[bytes]":
        """Anew, when the one before is dead; one that is new joins."""
        files = (str(self.folder / "events"), str(self.folder / f"reports-{name}"))
        return self._started(name, "tests.rollout.supervise", *files, "played")

    def _started(self, name: str, module: str, *arguments: str) -> "subprocess.Popen[bytes]":
        own = {
            "MODEL": self.folder,
            "MODEL_ID": "m",
            "WORKER_ID": name,
            "COPIES_DIR": self.folder / f"host-{name}",
            "TRANSPORTS": '["gloo", "http"]',
            **QUICK,
        }
        environment = {
            **os.environ,
            **{f"CLAW_ROLLOUT_{key}": str(value) for key, value in own.items()},
            holds.FOLDER: str(self.holds),
            holds.WHO: name,
            "PYTHONPATH": str(ROOT),
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            argv = [sys.executable, "-m", module, *arguments]
            return children.start(argv, env=environment, stdout=log, stderr=log, cwd=ROOT)

    def want(self, version: int, each_s: float = 0.0) -> None:
        """Versions up to this one, so many seconds apart."""
        self.wanted = version
        (self.folder / "new").write_text(f"{version} {each_s}")
        (self.folder / "new").rename(self.folder / "wanted")

    def next_version(self) -> dict[str, str]:
        """By which way each worker has it."""
        self.want(self.wanted + 1)
        return self.arrived(*self.workers)

    def arrived(self, *names: str) -> dict[str, str]:
        """By which way these workers have the newest version, once they have it."""
        until(
            lambda: all(self.version_of(name) == self.wanted for name in names),
            f"version {self.wanted} at {names}",
            patience_s=SLOW_S,
        )
        return {name: str(self.report(name)["weights_from"]) for name in names}

    def version_of(self, name: str) -> int | None:
        """The version that a worker serves, if it is ready."""
        report = self.report(name)
        return report["version"] if report.get("state") == "ready" else None

    def report(self, name: str) -> dict[str, Any]:
        """The last whole one of a worker; empty before the first."""
        reports = self.folder / f"reports-{name}"
        lines = reports.read_text().rpartition("\n")[0].splitlines() if reports.exists() else []
        return json.loads(lines[-1]) if lines else {}

    def beats(self) -> int:
        """How often the trainer's loop went round, since that began."""
        return int((self.folder / "beats").read_text())

    def process(self, victim: str, worker: str) -> psutil.Process:
        """A process of the fleet, by its kind."""
        if victim == "trainer":
            return psutil.Process(self.trainer.pid)
        if victim == "supervisor":
            return psutil.Process(self.workers[worker].pid)
        if victim == "engine":
            below = psutil.Process(self.workers[worker].pid).children(recursive=True)
            return next(each for each in below if ENGINE in _words(each) and REAPER not in _words(each))
        (carrier,) = self.carriers("trainer" if victim == "its carrier" else worker)
        return carrier

    def carriers(self, name: str) -> list[psutil.Process]:
        """Those that live below the trainer or a worker."""
        above = psutil.Process(self.trainer.pid if name == "trainer" else self.workers[name].pid)
        return [each for each in above.children(recursive=True) if HELD_CARRIER in _words(each)]

    def end_group(self) -> None:
        """The trainer finds its carrier gone, and makes another group for the next version."""
        signalled(self.process("its carrier", ""), signal.SIGKILL)

    def restart(self, victim: str, worker: str, below: Sequence[psutil.Process]) -> None:
        """What nobody else starts again after kill -9. below: the descendants that it had, none of whom stays."""
        if victim == "trainer":
            self.trainer.wait()
            self.trainer = self.start_trainer()
        elif victim == "supervisor":
            self.workers[worker].wait()
            self.workers[worker] = self.start_worker(worker)
        else:
            return
        _, alive = psutil.wait_procs(below, PATIENCE_S)
        assert not alive, f"a killed {victim} left {alive}"

    def check(self) -> None:
        """A file with a digest's name has that digest, nothing is left of what was begun, and nobody gathers processes or descriptors."""
        assert list(self.misnamed()) == []
        until(lambda: not [*self.folder.glob("host-*/b3:*.unfinished")], "nothing unfinished")
        processes = {name: self.workers[name].pid for name in self.workers} | {"trainer": self.trainer.pid}
        for name, pid in processes.items():
            # Who asked too late for one gathering has a group of its own, until both ask again for another version.
            step = self.next_version if name == "trainer" else None
            until(lambda name=name: len(self.carriers(name)) == 1, f"one carrier of {name}", step=step)
            allowed = self._descriptors.setdefault(pid, _descriptors(pid)) + DESCRIPTORS_BESIDE
            until(lambda pid=pid, most=allowed: _descriptors(pid) <= most, f"no more descriptors of {name}")

    def misnamed(self) -> Iterator[Path]:
        """Files that are not what their names say."""
        manifests = {event.digest: manifest_of(event) for event in events_of(self.folder)}
        for path in self.folder.glob("host-*/b3:*"):
            if path.suffix == ".unfinished":
                continue
            try:
                content = memoryview(path.read_bytes())
            except FileNotFoundError:
                continue  # let go meanwhile
            digest = Digest(BLAKE3)
            for tensor, begin in manifests[path.name].offsets():
                digest.update(content[begin : begin + tensor.nbytes])
            if digest.text() != path.name:
                yield path

    def close(self) -> None:
        """Leaves no process and no file of a version."""
        for process in (*self.workers.values(), self.trainer):
            process.send_signal(signal.SIGCONT)
        for process in self.workers.values():
            children.end(process)
        children.end(self.trainer, 0.0)
        left = [path for path in self.folder.glob("host-*/*") if path.name != "carrier"]
        for log in () if self.is_sound else self.folder.glob("*.log"):
            print(log.name, log.read_text()[-3000:])
        shutil.rmtree(self.folder)
        assert not self.is_sound or left == []


def _words(process: psutil.Process) -> list[str]:
    """Empty for one that has ended meanwhile."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one, too
        return []


def signalled(process: psutil.Process, number: int) -> None:
    """Sends a signal; one that was killed is dead when this returns."""
    process.send_signal(number)
    if number == signal.SIGKILL:
        until(lambda: _is_dead(process), "its end")


def _is_dead(process: psutil.Process) -> bool:
    """Returns whether its parent can be told so: it cannot while other threads of a zombie still end."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE and int(process.num_threads()) <= 1
    except psutil.NoSuchProcess:
        return True


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
