"""The process that runs one program of an agent: a script that `runner.py` starts, which imports nothing of ours.

Invariant: before a line of the program runs, limits and a filter of system calls stand that nobody can take back. What is left are
memory, time, and the two open files (stdin, which was read, and stdout): no other file, no process, no signal, no network.
`argv[1]`: the limits and `confined` as JSON. stdin: `source` and `inputs`. stdout: one line of JSON per input. Exit code 3: no filter.
"""

# What a program may import; nothing can be loaded later.
import bisect  # noqa: F401
import collections  # noqa: F401
import ctypes
import functools  # noqa: F401
import heapq  # noqa: F401
import itertools  # noqa: F401
import json
import math  # noqa: F401
import platform
import re  # noqa: F401
import resource
import string  # noqa: F401
import struct
import sys
from typing import Any

SYSTEM_CALLS = (0, 1, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 25, 28, 39, 60, 96, 202, 228, 231, 318)
"""Of x86-64: read, write, close, fstat, lseek, mmap, mprotect, munmap, brk, rt_sigaction, rt_sigprocmask, rt_sigreturn, mremap,
madvise, getpid, exit, gettimeofday, futex, clock_gettime, exit_group, getrandom."""
AUDIT_ARCH_X86_64 = 0xC000003E
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050001  # the last one with EPERM
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 1, 22, 38, 2
NO_FILTER = 3


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def limit(bounds: dict[str, int]) -> None:
    """CPU seconds, bytes of memory, bytes of output; no core, few files, no life after the runner's."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)
    for name, value in (("CPU", bounds["cpu_s"]), ("AS", bounds["memory_bytes"]), ("FSIZE", bounds["output_bytes"])):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))


def confine() -> bool:
    """False where the kernel or the machine has no such filter."""
    libc = ctypes.CDLL(None)
    instruction = struct.Struct("=HBBI").pack
    code = instruction(LOAD, 0, 0, 4) + instruction(EQUAL, 1, 0, AUDIT_ARCH_X86_64) + instruction(RETURN, 0, 0, KILL)
    code += instruction(LOAD, 0, 0, 0)
    for number in SYSTEM_CALLS:
        code += instruction(EQUAL, 0, 1, number) + instruction(RETURN, 0, 0, ALLOW)
    code += instruction(RETURN, 0, 0, REFUSE)
    if platform.machine() != "x86_64" or libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    program = _Filter(len(code) // 8, code)
    return int(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)) == 0


def main() -> None:
    """Run `solve` of the program on each input."""
    options, request, out = json.loads(sys.argv[1]), json.load(sys.stdin), sys.stdout
    sys.stdout = None  # what a program prints is dropped
    limit(options)
    if options["confined"] and not confine():
        sys.exit(NO_FILTER)
    scope: dict[str, Any] = {"__name__": "program"}  # Any: what a program defines
    fault: BaseException | None = None
    try:
        exec(compile(request["source"], "program", "exec"), scope)  # noqa: S102  # what all this is for
    except BaseException as error:  # noqa: BLE001
        fault = error
    for arguments in request["inputs"]:
        try:
            line = json.dumps({"error": _text(fault)} if fault else {"value": scope["solve"](*arguments)})
        except BaseException as error:  # noqa: BLE001
            line = json.dumps({"error": _text(error)})
        out.write(line + "\n")
        out.flush()


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]


if __name__ == "__main__":
    main()
