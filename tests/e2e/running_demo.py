"""A demo in a process of its own, as a person runs it, and what must hold when it is over."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests import children

ADDED = "from-elsewhere"
GO_ON_S = 300.0
BATCH_LINE = re.compile(r"batch\s+(\d+)\s")


class RunningDemo:
    """A demo in a process of its own, with its own home; reads its progress as a person would."""

    def __init__(
        self, home: Path, workers: int, batches: int, more: Mapping[str, str], flags: Sequence[str] = ()
    ) -> None:
        self.env = {**os.environ, **more, "CLAW_HOME": str(home)}
        self.env.pop("KAFKA_BOOTSTRAP_SERVERS", None)
        command = [
            sys.executable,
            "-m",
            "claw_r1.claw.cli",
            "demo",
            "--json",
            "--batches-max",
            str(batches),
            "--batches-min",
            str(batches),
            "--workers",
            str(workers),
            *flags,
        ]
        self.process = children.start(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.batch = 0
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.said.append(line.rstrip())
            if found := BATCH_LINE.search(line):
                self.batch = int(found[1])

    def pids(self) -> dict[str, int]:
        components = json.loads(self.claw("status", "--json"))["components"]
        return {entry["component"]: entry["pid"] for entry in components if entry["pid"]}

    def claw(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "claw_r1.claw.cli", *arguments],
            env=self.env,
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode(errors="replace")

    def add_worker(self, home: Path) -> "subprocess.Popen[str]":
        """As somebody on another machine would, of whom the stack knows nothing."""
        (run,) = (home / "runs").iterdir()
        log, trainer = json.loads((run / "log.json").read_text()), yaml.safe_load((run / "trainer.yaml").read_text())
        where = {"KAFKA_BOOTSTRAP_SERVERS": log["bootstrap_servers"], "CLAW_LOG_PREFIX": log["prefix"]}
        names = ("--model-id", trainer["model_id"], "--served-name", trainer["model_id"], "--run-id", run.name)
        flags = ("--model", trainer["model_dir"], *names, "--worker-id", ADDED, "--log-file", str(home / "added.log"))
        command = [sys.executable, "-m", "claw_r1.rollout", *flags]
        with (home / "added-rollout.log").open("wb") as output:
            environment = {**self.env, **where, "CLAW_LOG_PARTITIONS": "8", "OMP_NUM_THREADS": "1"}
            return children.start(command, env=environment, stdout=output, stderr=output, text=True)

    def wait_for_batch(self, batch: int) -> None:
        deadline = time.monotonic() + GO_ON_S
        while self.batch < batch:
            assert self.process.poll() is None, "\n".join(self.said[-20:])
            assert time.monotonic() < deadline, f"no batch {batch} within {GO_ON_S:.0f} s\n" + "\n".join(
                self.said[-20:]
            )
            time.sleep(0.1)

    def wait_for_engine(self, home: Path) -> None:
        deadline = time.monotonic() + GO_ON_S
        while not any("rollout.process.vllm_server" in command for command in processes_of(home)):
            assert self.process.poll() is None, "\n".join(self.said[-20:])
            assert time.monotonic() < deadline, f"no engine within {GO_ON_S:.0f} s"
            time.sleep(0.1)

    def result(self) -> dict[str, Any]:
        assert self.process.stdout
        lines = self.process.stdout.read().splitlines()
        self.process.wait(60)
        assert len(lines) == 1, "\n".join(self.said[-20:])
        parsed: dict[str, Any] = json.loads(lines[0])
        return parsed


def processes_of(home: Path) -> list[str]:
    """Command lines of processes that carry this home in their environment."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"CLAW_HOME={home}".encode() in environ.read_bytes():
                found.append(environ.with_name("cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def the_log_holds_what_was_promised(demo: RunningDemo, home: Path) -> None:
    """By an oracle that shares no code with the folds: the pool is that of the facts, no step was trained twice, and every
    call that an agent had a reply of is captured."""
    (run,) = (home / "runs").iterdir()
    replied = run / "replied.txt"
    report = json.loads(demo.claw("verify", "--replied", str(replied), "--run", run.name, "--json"))
    assert report["counts"]["replied"] == len(replied.read_text().splitlines()) > 0
