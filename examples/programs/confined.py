"""The process that runs one program of an agent: a script that `runner.py` starts, which imports nothing of ours.

Invariant: before a line of the program runs, limits and a filter of system calls stand that nobody can take back. What is left are
memory, time, and the two open files (stdin, which was read, and stdout): no other file, no process, no signal, no network.
`argv[1]`: the limits and `confined` as JSON. stdin: `source` and `inputs`. stdout: a mark once the filter
stands, then one line of JSON per input. Exit code 3 without the mark: no filter.
"""

import ctypes
import importlib
import json
import platform
import resource
import struct
import sys

for _module in ("bisect", "collections", "functools", "heapq", "itertools", "math", "re", "string"):
    importlib.import_module(_module)  # what a program may import; nothing can be loaded later

SYSTEM_CALLS = (0, 1, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 25, 28, 39, 60, 96, 202, 228, 231, 318)
"""Of x86-64: read, write, close, fstat, lseek, mmap, mprotect, munmap, brk, rt_sigaction, rt_sigprocmask, rt_sigreturn, mremap,
madvise, getpid, exit, gettimeofday, futex, clock_gettime, exit_group, getrandom."""
AUDIT_ARCH_X86_64 = 0xC000003E
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050001  # the last one with EPERM
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 1, 22, 38, 2
LIBC = ctypes.CDLL(None)


def limit(cpu_s: int, memory_bytes: int, output_bytes: int) -> None:
    """No core and few files besides; no life after the runner's."""
    LIBC.prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)
    limits = {"CPU": cpu_s, "AS": memory_bytes, "FSIZE": output_bytes, "CORE": 0, "NOFILE": 16}
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def confine() -> bool:
    """False where the kernel or the machine has no such filter."""
    steps = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, AUDIT_ARCH_X86_64), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    steps += [step for number in SYSTEM_CALLS for step in ((EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW))]
    steps.append((RETURN, 0, 0, REFUSE))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    if platform.machine() != "x86_64" or LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return int(LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)) == 0


def main() -> None:
    """Run `solve` of the program on each input."""
    options, request, out = json.loads(sys.argv[1]), json.load(sys.stdin), sys.stdout
    sys.stdout = None  # what a program prints is dropped
    limit(options["cpu_s"], options["memory_bytes"], options["output_bytes"])
    if options["confined"] and not confine():
        sys.exit(3)
    print("begun", file=out, flush=True)  # no program can take it back: it cannot truncate a file
    scope: dict[str, object] = {"__name__": "program"}
    try:
        exec(compile(request["source"], "program", "exec"), scope)  # noqa: S102  # what all this is for
        solve = scope["solve"]
    except BaseException as error:  # noqa: BLE001  # whatever ends the program is what is reported
        solve = error
    for arguments in request["inputs"]:
        try:
            if isinstance(solve, BaseException):
                raise solve
            line = json.dumps({"value": solve(*arguments)})  # type: ignore[operator]  # an input's error where it is none
        except BaseException as error:  # noqa: BLE001  # whatever ends the program is what is reported
            line = json.dumps({"error": f"{type(error).__name__}: {error}"[:200]})
        out.write(line + "\n")
        out.flush()


if __name__ == "__main__":
    main()
