"""Runs a program that the kernel ends when its parent does, even when the parent is killed with -9. Linux only.

    python -I -S schemas/runtime/die_with_parent.py <parent pid> <signal> program [arguments]

A launcher of its own instead of `preexec_fn`: that one is unsafe in a process with threads (Kafka clients have many).
The kernel watches the *thread* that started the child: start children from a thread that lives as long as they should.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def leashed(argv: list[str], death_signal: int = signal.SIGKILL) -> list[str]:
    """The command line that runs `argv` as a child which gets `death_signal` when the calling process ends."""
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), str(int(death_signal)), *argv]


def main(parent_pid: int, death_signal: int, argv: list[str]) -> None:
    """Becomes `argv`; ends at once when the parent is already gone."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit(f"{argv[0]} is not started: its parent is gone")
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"cannot run {argv[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
