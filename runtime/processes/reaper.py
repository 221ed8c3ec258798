"""No process of a command's group outlives the reaper; with `KILL_NOW` as its death signal the reaper outlives no parent.

usage: python -m claw_r1.runtime.processes.reaper COMMAND...

For a command of several processes, such as vLLM, whose engine is a grandchild that no signal to its parent reaches. The
reaper gives them a process group, ends when the command ends, and then kills what is left of the group.
SIGTERM: asks the command to stop. SIGUSR1, which it also gets at its parent's death: kills the group at once.
"""

import os
import signal
import sys
from collections.abc import Sequence

from claw_r1.runtime.processes.child import kill_group, module_argv, reap, start

KILL_NOW = signal.SIGUSR1


def reaped(argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` under a reaper. Its starter gives `KILL_NOW` as the death signal."""
    return list(module_argv("claw_r1.runtime.processes.reaper", *argv))


def main(argv: Sequence[str]) -> int:
    """Runs `argv` to its end; returns its exit code (128 + signal where it was killed)."""
    signal.signal(KILL_NOW, lambda *_: sys.exit(128 + KILL_NOW))
    child = start(argv)  # it dies with us, should SIGKILL end the reaper itself
    signal.signal(signal.SIGTERM, lambda number, _frame: os.kill(child.pid, number))
    signal.signal(KILL_NOW, lambda *_: kill_group(child.pid))
    # WNOWAIT keeps the pid, and with it the group's number, from being used again before the group is killed.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    code = reap(child)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
