"""The help for a CPU that traps on its own instructions, for all that runs in an environment: tests, `claw`, and what a person
types there.

Python reads `claw-cpu.pth` whenever it starts there, so that there is no program that could start without. A value that is
set already stays.
"""

from collections.abc import Sequence
from pathlib import Path

from claw_r1.claw import bf16
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.install.command import say

LINE = (
    "import os; set(os.environ).isdisjoint({variables}) and os.environ.update({variable}={value!r})"
    "  # this CPU traps on AMX: {path}\n"
)
SAID = {
    "runs": "it runs",
    "capped": f"AMX is announced and an illegal instruction: {bf16.VARIABLES[0]}={bf16.WITHOUT_AMX} for all that runs in this environment",
    "dies": "it is an illegal instruction, also without AMX: train in fp32",
}


def settle(environment: Path, *, again: bool, command: Sequence[str | Path] | None = None) -> None:
    """Tries a product in bf16, once per CPU (or `again`), and caps oneDNN in this environment where it needs that.

    command: the child that multiplies; as a rule the environment's own Python.
    """
    if not again and bf16.recorded(environment) is not None:
        return
    cap = next((environment / "lib").glob("python3.*/site-packages")) / "claw-cpu.pth"
    (environment / bf16.RECORD).unlink(missing_ok=True)  # before the cap that it speaks of: the trial may tell nothing
    cap.unlink(missing_ok=True)  # what an earlier CPU needed
    say("  one product in bf16 on this CPU")
    try:
        trial = bf16.tried(command or bf16.product(environment / "bin" / "python"))
    except CannotRun as unknown:  # nothing that would keep anybody from what needs no bf16; the next start tries again
        say(f"    {unknown}")
        return
    if trial.outcome == "capped":
        cap.write_text(
            LINE.format(
                variables=bf16.VARIABLES,
                variable=bf16.VARIABLES[0],
                value=bf16.WITHOUT_AMX,
                path=environment / bf16.RECORD,
            )
        )
    bf16.record(trial, environment)
    say(f"    {SAID[trial.outcome]}")
