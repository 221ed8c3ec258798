"""Runs a program of an agent in a process of its own (`confined.py`), within limits, whatever the program does."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from claw_r1.agentflow.errors import AgentFlowError

NO_FILTER = 3
UNCONFINED = "CLAW_PROGRAMS_UNCONFINED"


class CannotConfine(AgentFlowError):
    """This machine has no filter of system calls (Linux x86-64, seccomp): programs of agents
    could do as they like."""


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """The limits of one program and all its inputs together."""

    cpu_s: int = 2
    wall_s: float = 6.0
    memory_bytes: int = 256 << 20
    output_bytes: int = 64 << 10
    confined: bool = True
    """False: a program may open files, start processes and reach the network; the other limits stay."""


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """The result of `solve` for one input (a JSON value, hence object), or the reason why there is none."""

    value: object = None
    error: str | None = None


def run_program(source: str, inputs: Sequence[Sequence[object]], limits: ProgramLimits) -> list[ProgramOutput]:
    """One output per input, blocking for at most `wall_s`. Raises CannotConfine."""
    command = [
        sys.executable,
        "-I",
        "-S",
        "-B",
        str(Path(__file__).with_name("confined.py")),
        json.dumps(asdict(limits)),
    ]
    with tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as reply:
        request.write(json.dumps({"source": source, "inputs": inputs}).encode())
        request.seek(0)
        process = subprocess.Popen(
            command, stdin=request, stdout=reply, stderr=subprocess.DEVNULL, env={}, cwd="/", start_new_session=True
        )
        try:
            fault = "limit of memory or CPU time, or a crash" if process.wait(limits.wall_s) else "no output"
        except subprocess.TimeoutExpired:
            fault = f"no end within {limits.wall_s:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):  # the usual case: nobody is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reply.seek(0)
        written = reply.read(limits.output_bytes)
        if process.returncode == NO_FILTER and limits.confined and not written:
            raise CannotConfine(f"programs cannot be confined on this machine: {UNCONFINED}=1 runs them as they are")
        return _outputs(written, len(inputs), fault)


def _outputs(reply: bytes, count: int, fault: str) -> list[ProgramOutput]:
    """Returns the outputs that the process wrote behind its mark; it is the program's word, so anything may stand there."""
    outputs = []
    for line in reply.splitlines()[1 : count + 1]:
        try:
            body = json.loads(line)
            outputs.append(ProgramOutput(value=body.get("value"), error=body.get("error")))
        except (ValueError, AttributeError, RecursionError):
            break
    return outputs + [ProgramOutput(error=fault)] * (count - len(outputs))
