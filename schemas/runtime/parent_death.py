"""A process that must not outlive its parent asks the kernel to see to it; Linux only."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def signal_on_parent_death(number: signal.Signals, parent_pid: int) -> None:
    """Get `number` when the parent ends, even by SIGKILL; at once when `parent_pid` is gone already.

    The kernel watches the parent's thread that started this process, so a parent must do that from a lasting thread.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), number)
