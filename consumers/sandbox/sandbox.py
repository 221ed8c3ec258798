"""A sandbox: a keeper process, and what it answers. `Sandbox().run(["python3", "main.py"], {"main.py": b"…"})`.

Used by one thread at a time; several of them run side by side. The keeper costs a few megabytes and stays.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw_r1.consumers.sandbox.keeper import receive, send

ANSWER_SPARE_S = 30.0
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
ROOT = Path(__file__).absolute().parents[3]
"""The folder that holds `claw_r1`."""
KEEPER = "import sys; sys.path.insert(0, sys.argv[1]); from claw_r1.consumers.sandbox.keeper import main; main(int(sys.argv[2]))"


class SandboxRefused(Exception):
    """No sandbox can be had here, or the code did not begin; one line for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The resources that one program, with all processes that it starts, may use."""

    cpu_s: float = 10.0
    """The CPU seconds of each process; rounded up to whole seconds."""
    wall_s: float = 30.0
    """From the start to the end of everything."""
    memory_bytes: int = 512 << 20
    """Resident, of all processes together; looked at every 20 ms."""
    processes: int = 32
    """At once, threads included."""
    files_bytes: int = 64 << 20
    """The most bytes of all files that it writes; they lie in memory."""
    output_bytes: int = 1 << 20
    """The most bytes of stdout and of stderr, each."""


LIMITS = SandboxLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOutcome:
    """The outcome of a program, as its keeper saw it."""

    exit_code: int | None
    """None where it did not end by itself."""
    signal: int
    reason: str
    """`ended`; or the limit that it broke: wall, cpu, memory, processes, output; `over`: it was waited for no longer;
    `refused`: it did not begin; `killed`: somebody killed it from outside."""
    detail: str
    stdout: bytes
    stderr: bytes
    report: bytes
    """The bytes that a trusted program wrote to its report descriptor; empty for code."""
    cpu_s: float
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxProgram:
    """The program to run: nothing of ours is in its environment."""

    argv: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Relative path -> content, below the working directory. ValueError: it leads out of it."""
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: SandboxLimits = LIMITS
    reports: bool = False
    """The program gets a descriptor for `report` (the one after its others). For programs that hold no code of a
    model."""


class Sandbox:
    """Starts its keeper at once. A context manager."""

    def __init__(self, *, readable: Sequence[str] = ()) -> None:
        """readable: folders of this machine that programs see, beside the system's and Python's own.

        Raises SandboxRefused where the kernel gives no isolation of files and network.
        """
        places = [sys.base_prefix, sys.prefix, *readable]
        self._readable = [
            place for place in dict.fromkeys(map(os.path.abspath, places)) if not place.startswith("/usr/")
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._peer: socket.socket | None = None
        self._open()

    def run(self, program: SandboxProgram) -> SandboxOutcome:
        """One program to its end. Raises SandboxRefused when it could not begin."""
        return self._asked([program])[0]

    def run_joined(self, code: SandboxProgram, tests: SandboxProgram) -> tuple[SandboxOutcome, SandboxOutcome]:
        """Two programs in two sandboxes, which see nothing of each other but a socket, the descriptor 3 of each.

        It is over when `tests` ends.
        """
        first, second = self._asked([code, tests])
        return first, second

    def abort(self) -> None:
        """Ends what runs at once; for another thread. The one that waits gets SandboxRefused."""
        peer = self._peer
        with suppress(OSError):
            if peer is not None:
                peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the keeper, and with it what runs. Idempotent."""
        if self._peer is not None:
            self._peer.close()
        if self._process is not None:
            try:
                self._process.wait(5.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._peer = self._process = None

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        ours, theirs = socket.socketpair()
        argv = [sys.executable, "-I", "-S", "-c", KEEPER, str(ROOT), str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                argv, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, env=ENVIRONMENT, start_new_session=True
            )
        self._peer = ours
        ours.settimeout(ANSWER_SPARE_S)
        try:
            send(ours, self._readable)
            refusal = receive(ours)
        except (OSError, EOFError) as error:
            self.close()
            raise SandboxRefused("the sandbox's keeper did not start") from error
        if refusal:
            self.close()
            raise SandboxRefused(refusal)

    def _asked(self, programs: Sequence[SandboxProgram]) -> list[SandboxOutcome]:
        if self._peer is None:
            self._open()
        assert self._peer is not None
        wall_s = programs[-1].limits.wall_s
        self._peer.settimeout(wall_s + ANSWER_SPARE_S)
        try:
            send(self._peer, {"programs": [_plain(program) for program in programs], "wall_s": wall_s})
            answer = receive(self._peer)
        except (OSError, EOFError) as error:
            with suppress(OSError):
                self.close()  # the next one gets a new keeper
            raise SandboxRefused("the sandbox's keeper ended") from error
        if isinstance(answer, str):
            raise SandboxRefused(answer)
        outcomes = [SandboxOutcome(**fields) for fields in answer]
        for outcome in outcomes:
            if outcome.reason == "refused":
                raise SandboxRefused(outcome.detail)
        return outcomes


def _plain(program: SandboxProgram) -> dict[str, Any]:
    limits = program.limits
    return {
        "argv": list(program.argv),
        "files": {name: bytes(content) for name, content in program.files.items()},
        "stdin": program.stdin,
        "env": {**ENVIRONMENT, **program.environment},
        "cpu_s": limits.cpu_s,
        "memory_bytes": limits.memory_bytes,
        "processes": limits.processes,
        "files_bytes": limits.files_bytes,
        "output_bytes": limits.output_bytes,
        "reports": program.reports,
    }
