"""Container engines, and rooms in containers of our images as a cluster runs them."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from claw_r1.claw.local.ports import free_ports
from claw_r1.claw.local.stack import answers
from claw_r1.eventlog.settings import LogSettings
from tests import children
from tests.debian_programs import unpacked
from tests.patience import until

BASE_TARGETS = ("gateway", "streams", "kafka")
"""The targets that are always built."""
TARGETS = (*BASE_TARGETS, *os.environ.get("CLAW_IMAGES_TEST", "").replace("run", "").split())
USER = 10001
AS_IN_A_CLUSTER = (
    *("--network", "host", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges", "--shm-size", "512m"),
)
START_S = 300.0
"""The patience with a room that starts."""


@dataclass(frozen=True)
class Engine:
    """Builds and runs by two programs, which may be one, with the flags that each needs here."""

    build: str
    run: str
    build_flags: str = ""
    run_flags: tuple[str, ...] = ()
    registry: str = ""

    def image(self, target: str) -> str:
        """The name of the image of a target."""
        return f"{self.registry}claw-{target}:test"

    def do(self, *arguments: str | Path) -> str:
        """The answer of the program that runs; the test fails with its words."""
        done = subprocess.run([self.run, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        """Returns whether the image is here."""
        looked = subprocess.run([self.run, "image", "inspect", image], capture_output=True, check=False)
        return looked.returncode == 0

    @contextlib.contextmanager
    def answering(self, folder: Path) -> Iterator[str]:
        """The socket of the engine as DOCKER_HOST has it: docker's own, or one that podman serves meanwhile."""
        if Path(self.run).name == "docker":
            yield os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
            return
        socket = folder / "podman.sock"
        service = children.start([self.run, "system", "service", "--time", "0", f"unix://{socket}"])
        try:
            until(socket.exists, "podman's socket")
            yield f"unix://{socket}"
        finally:
            children.end(service)


def found() -> Engine:
    """docker where its daemon answers, else podman and buildah: those of the machine, or Debian's, unpacked. Raises
    FileNotFoundError."""
    if shutil.which("docker") and not subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        return Engine("docker", "docker", "--network host")
    folder = Path(shutil.which("podman") or unpacked("engine.sh")).parent
    trusted = "--volume /etc/ssl/certs:/etc/ssl/certs:ro"  # whom this machine trusts, its mirrors among them
    unwatched = ("--no-healthcheck",)  # podman asks by systemd
    return Engine(
        str(folder / "buildah"), str(folder / "podman"), f"-q --network host {trusted}", unwatched, "localhost/"
    )


class Room:
    """A room's container while the block lasts, on the log and with a home of its own; it may end sooner."""

    def __init__(self, engine: Engine, target: str, log: LogSettings, folder: Path, env: Mapping[str, str]) -> None:
        self.target, self.home = target, folder / target
        self.ready_s = 0.0
        """From the start of the container until it said that it was ready."""
        self._engine, self._name = engine, f"claw-test-{target}-{log.prefix}"
        self.port = free_ports(1)[0]
        """The port of its metrics and probes."""
        self._variables = {
            "KAFKA_BOOTSTRAP_SERVERS": log.bootstrap_servers,
            "CLAW_LOG_PREFIX": log.prefix,
            "CLAW_LOG_PARTITIONS": str(log.partitions),
            f"CLAW_{target.upper()}_METRICS_PORT": str(self.port),
            **env,
        }
        self._mounts = {self.home: "/var/lib/claw"}
        self._command: tuple[str, ...] = ()

    def given(self, path: Path, place: str) -> Self:
        """Puts a file or folder of this machine there, to be read only."""
        self._mounts[path] = f"{place}:ro"
        return self

    def told(self, *command: str) -> Self:
        """Gives the room flags."""
        self._command = command
        return self

    def __enter__(self) -> Self:
        self.home.mkdir()
        os.chown(self.home, USER, USER)
        mounts = [word for path, place in self._mounts.items() for word in ("--volume", f"{path}:{place}")]
        variables = [word for name, value in self._variables.items() for word in ("--env", f"{name}={value}")]
        flags = (*AS_IN_A_CLUSTER, *self._engine.run_flags, *mounts, *variables)
        self._began_s = time.monotonic()
        self._engine.do("run", "-d", "--name", self._name, *flags, self._engine.image(self.target), *self._command)
        return self

    def await_ready(self) -> None:
        """Waits for /readyz, and says how long that took. Fails with the room's words where it ended instead."""
        ready = answers(f"http://127.0.0.1:{self.port}/readyz")
        until(lambda: ready() or not self.runs, f"readyz of {self.target}", patience_s=START_S)
        assert self.runs, self.said
        self.ready_s = time.monotonic() - self._began_s

    def await_that(self, holds: Callable[[], object], what: str, patience_s: float = START_S) -> None:
        """Waits for it for as long as the room runs."""
        until(lambda: holds() or not self.runs, what, patience_s=patience_s)
        assert self.runs, self.said

    @property
    def runs(self) -> bool:
        return self._engine.do("inspect", "--format", "{{.State.Running}}", self._name) == "true"

    @property
    def said(self) -> str:
        """The last words of its log."""
        logs = subprocess.run([self._engine.run, "logs", self._name], capture_output=True, text=True, check=False)
        return f"{self.target}: {logs.stdout[-3000:]} {logs.stderr[-3000:]}"

    def run(self, *command: str) -> str:
        """The answer of a command in the container."""
        return self._engine.do("exec", self._name, *command)

    def stop(self, patience_s: int = 45) -> None:
        """SIGTERM ends the room in order: within its time, with exit code 0."""
        began_s = time.monotonic()
        self._engine.do("stop", "-t", str(patience_s), self._name)
        code = self._engine.do("inspect", "--format", "{{.State.ExitCode}}", self._name)
        print(f"claw-{self.target}: ended {time.monotonic() - began_s:.1f} s after SIGTERM")
        assert code == "0", f"exit code {code}: {self.said}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.said)
        self._engine.do("rm", "-f", self._name)
