"""A process that the kernel ends when its parent ends, even when the parent is killed with -9. Linux only.

As a program it asks the kernel for that and then becomes another program:
    python -I -S runtime/processes/die_with_parent.py PARENT_PID SIGNAL PROGRAM [ARGUMENTS]
It stands in for `preexec_fn`, which is unsafe in a process with threads (Kafka clients have many). Standard library only.
The kernel watches the *thread* that started the child: start children from a thread that lives as long as they should.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
PROGRAM_NOT_FOUND = 127
"""The exit code that shells use for it."""


def die_with_parent(parent_pid: int, death_signal: int = signal.SIGKILL) -> None:
    """Lets the kernel send `death_signal` to this process when its parent ends; sends it at once when the parent is gone.

    Raises OSError when the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), death_signal)


def dying_with_parent(argv: Sequence[str], death_signal: int = signal.SIGKILL) -> list[str]:
    """The command line that runs `argv` as a child which gets `death_signal` when the calling process ends."""
    launcher = [sys.executable, "-I", "-S", str(Path(__file__).resolve())]
    return [*launcher, str(os.getpid()), str(int(death_signal)), *argv]


def main(parent_pid: int, death_signal: int, argv: list[str]) -> None:
    """Becomes `argv`."""
    die_with_parent(parent_pid, death_signal)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"cannot run {argv[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(PROGRAM_NOT_FOUND)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
