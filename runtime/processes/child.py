"""One child process: it leads a process group of its own, ends with the thread that started it, and is ended whole.

It is looked at without being reaped: until `reap`, its pid and its group's number are nobody else's.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from claw_r1.runtime.processes.die_with_parent import dying_with_parent

POLL_S = 0.02


def module_argv(module: str, *arguments: str) -> tuple[str, ...]:
    """The command line `python -m MODULE ARGUMENTS…` of this environment.

    `-P`: the working folder is no place of its modules. A `schemas.py` or a folder `gateway` that a person keeps there would
    be imported in place of ours.
    """
    return (sys.executable, "-P", "-m", module, *arguments)


def start(
    argv: Sequence[str],
    *,
    death_signal: int = signal.SIGKILL,
    **options: Any,  # Popen's own options
) -> "subprocess.Popen[Any]":  # Any: bytes or text, as the options say
    """`subprocess.Popen` of a child that gets `death_signal` when the calling thread ends.

    Its group is its descendants; a terminal's Ctrl-C is for us, who end the child in our own order.
    """
    return subprocess.Popen(dying_with_parent(argv, death_signal), start_new_session=True, **options)


def start_spoken_to(module: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """A module as a child whose stdin and stdout are pipes of ours, on one thread for numbers."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return start(module_argv(module, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def has_ended(process: "subprocess.Popen[Any]") -> bool:
    """Returns whether the child itself ended; descendants may be left."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def wait(process: "subprocess.Popen[Any]", timeout_s: float) -> bool:
    """Waits, and returns whether the child itself ended within `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while not has_ended(process):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(POLL_S)
    return True


async def ended(process: "subprocess.Popen[Any]") -> None:
    """Returns when the child itself ended."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:  # it is reaped, or its kernel is older than 5.3
        while not has_ended(process):  # noqa: ASYNC110  # such a kernel sets no event of ours
            await asyncio.sleep(POLL_S)
        return
    has_come, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(pidfd, has_come.set)
    try:
        await has_come.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def end(process: "subprocess.Popen[Any]", *steps: tuple[int, float]) -> int:
    """Sends the signal of each step and waits its seconds, until the child itself ended; then `reap`."""
    try:
        for number, timeout_s in steps:
            if signalled(process, number, timeout_s):
                break
    finally:
        code = reap(process)
    return code


def signalled(process: "subprocess.Popen[Any]", number: int, timeout_s: float) -> bool:
    """Sends a signal to the child itself; whether it ended within `timeout_s`."""
    if not has_ended(process):
        os.kill(process.pid, number)
    return wait(process, timeout_s)


def reap(process: "subprocess.Popen[Any]") -> int:
    """SIGKILL to what is left of the child and its group; returns its exit code as `Popen.returncode` has it."""
    if process.returncode is None:
        kill_group(process.pid)
    return process.wait()


def kill_group(leader_pid: int) -> None:
    """SIGKILL to a child and to those of its descendants that are still in its process group."""
    with suppress(ProcessLookupError):  # nothing is left, the usual case
        os.killpg(leader_pid, signal.SIGKILL)
