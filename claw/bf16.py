"""A trial whether torch can multiply in bf16 on this CPU, made once in a child. Standard library only: the setup asks
before it ends.

Virtual machines announce AMX and trap on it: oneDNN, which torch multiplies by, then ends the process by an illegal instruction.
What was found stands in the environment (`ProcessorTrial`, in `claw-bf16.json`) together with the CPU on which it was tried.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from claw_r1.claw.errors import CannotRun

VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""By either of them oneDNN is told the newest instructions that it may use; the first wins."""
WITHOUT_AMX = "AVX512_CORE_BF16"
PRODUCT = (
    "import torch; layer = torch.nn.Linear(64, 64, dtype=torch.bfloat16); "
    "layer(torch.ones(4, 64, dtype=torch.bfloat16)).sum().backward()"
)
PRODUCT_TIMEOUT_S = 300.0
RECORD = "claw-bf16.json"
CPUINFO = Path("/proc/cpuinfo")

TrialOutcome = Literal["runs", "capped", "dies"]
"""`capped`: only without AMX; `dies`: not even so."""


@dataclass(frozen=True, slots=True)
class ProcessorTrial:
    """The outcome of one product in bf16 on one kind of CPU."""

    processor: str
    outcome: TrialOutcome


def processor(cpuinfo: Path = CPUINFO) -> str:
    """The first CPU's model and a digest of what it announces; without its clock, which changes."""
    lines = []
    with cpuinfo.open() as file:  # a machine has hundreds of CPUs: the first will do
        for line in file:
            if not line.strip():
                break
            lines.append(line.partition(":"))
    fields = {name.strip(): value.strip() for name, _, value in lines}
    return f"{fields.get('model name', 'unknown')}, {hashlib.sha256(fields.get('flags', '').encode()).hexdigest()[:12]}"


def recorded(environment: Path) -> ProcessorTrial | None:
    """Returns the trial that was recorded in this environment on this very CPU; None where nothing was, or on another."""
    try:
        trial = ProcessorTrial(**json.loads((environment / RECORD).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return trial if trial.processor == processor() else None


def record(trial: ProcessorTrial, environment: Path) -> None:
    """Keeps what was found, for this environment."""
    (environment / RECORD).write_text(json.dumps(asdict(trial)) + "\n")


def tried(command: Sequence[str | Path]) -> ProcessorTrial:
    """Multiplies in a child: as the machine is, and where that is an illegal instruction, once more without AMX.

    Raises CannotRun where the child tells nothing, because torch is not there, for example.
    """
    plain = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    if _lives(command, plain):
        return ProcessorTrial(processor(), "runs")
    return ProcessorTrial(processor(), "capped" if _lives(command, {**plain, VARIABLES[0]: WITHOUT_AMX}) else "dies")


def words(trial: ProcessorTrial) -> str:
    """Describes the trial to a person, as the variables of this process stand."""
    if trial.outcome == "runs":
        return "a product in bf16 runs"
    if trial.outcome == "dies":
        return "a product in bf16 is an illegal instruction here, also without AMX: train in fp32"
    chosen = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    advice = f"{chosen[0]} keeps torch from it" if chosen else f"set {VARIABLES[0]}={WITHOUT_AMX}"
    return f"AMX is announced and an illegal instruction, by which bf16 ends the process: {advice}"


def product(python: str | Path = sys.executable) -> list[str | Path]:
    """The command of a child that multiplies."""
    return [python, "-c", PRODUCT]


def _lives(command: Sequence[str | Path], environment: dict[str, str]) -> bool:
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PRODUCT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRun(f"whether this CPU can multiply in bf16 is not known: {error}") from error
    if done.returncode in (0, -signal.SIGILL):
        return done.returncode == 0
    last = done.stderr.strip().rpartition("\n")[2]
    raise CannotRun(
        f"whether this CPU can multiply in bf16 is not known: the trial ended with {done.returncode}: {last}"
    )
