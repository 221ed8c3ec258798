"""Between supervisor and vLLM: no process of a server outlives the keeper, and the keeper does not outlive its parent.

usage: python -m schemas.runtime.reaper PARENT_PID COMMAND...

vLLM is several processes, and the engine is a grandchild that no signal to its parent reaches. The keeper gives them
a process group, ends when the command ends, and then kills what is left of the group.
SIGTERM: stop the command politely. SIGUSR1, and the parent's death: kill the group at once.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import FrameType

from schemas.runtime.parent_death import signal_on_parent_death

KILL_NOW = signal.SIGUSR1
Handler = Callable[[int, FrameType | None], None]


def main(parent_pid: int, command: list[str]) -> int:
    """Run `command` to its end; its exit code (128 + signal where it was killed)."""
    signal.signal(KILL_NOW, lambda *_: sys.exit(128 + KILL_NOW))
    signal_on_parent_death(KILL_NOW, parent_pid)
    # preexec_fn is safe here: this process has one thread. It covers a SIGKILL of the keeper itself.
    child = subprocess.Popen(
        command, start_new_session=True, preexec_fn=_die_with(os.getpid()), stdin=subprocess.DEVNULL
    )
    signal.signal(signal.SIGTERM, _forward_to(child.pid))
    signal.signal(KILL_NOW, _kill_group_of(child.pid))
    # WNOWAIT keeps the pid, and with it the group's number, from being used again before the group is killed.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    _kill_group(child.pid)
    code = child.wait()
    return code if code >= 0 else 128 - code


def _die_with(keeper_pid: int) -> Callable[[], None]:
    return lambda: signal_on_parent_death(signal.SIGKILL, keeper_pid)


def _forward_to(pid: int) -> Handler:
    return lambda number, _frame: os.kill(pid, number)


def _kill_group_of(pid: int) -> Handler:
    return lambda _number, _frame: _kill_group(pid)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
