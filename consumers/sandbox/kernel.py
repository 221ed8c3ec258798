"""The kernel's calls by which a process shuts itself in, by ctypes: clone, mount, Landlock, seccomp. Linux, x86-64 and arm64.

Standard library only, and nothing is done at import. Every function raises OSError where the kernel refuses.
"""

import ctypes
import os
import platform
import signal
import struct
from collections.abc import Sequence

PF_EXITING = 0x4
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
NAMESPACES = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 36, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
CAPABILITIES_MAX = 64
SIGCHLD = 17
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
SHARED = {"mount_setattr": 442, "landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446}
NUMBERS = {
    "x86_64": {"clone": 56, "pivot_root": 155, "capset": 126, "seccomp": 317, **SHARED},
    "aarch64": {"clone": 220, "pivot_root": 41, "capset": 91, "seccomp": 277, **SHARED},
}

FS_EXECUTE, FS_WRITE_FILE, FS_READ_FILE, FS_READ_DIR, FS_IOCTL_DEV = 1, 2, 4, 8, 1 << 15
FS_BITS = (0, 13, 14, 15, 15, 16)
"""The number of file rights that each version of Landlock's ABI knows."""
NET_TCP = 3
SCOPE_ABSTRACT_UNIX_AND_SIGNAL = 3
FILE_RIGHTS = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | 1 << 14 | FS_IOCTL_DEV
"""The rights that may be granted on something that is no folder."""
SECCOMP_SET_MODE_FILTER = 1

_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock: after a clone there is one thread, this one


def call(name: str, *arguments: "int | bytes | ctypes.Array[ctypes.c_char] | None") -> int:
    """A system call by name."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    return _checked(_libc.syscall(ctypes.c_long(NUMBERS[platform.machine()][name]), *words), name)


def clone(namespaces: int) -> int:
    """Forks like `os.fork`, the child in new namespaces. For a process with one thread."""
    return call("clone", namespaces | SIGCHLD, 0, 0, 0, 0)


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    words = [word.encode() for word in (source, target, kind)]
    _checked(_libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None), f"mount {target}")


def let_go(path: str) -> None:
    """Unmounts a tree, also while somebody outside uses it."""
    _checked(_libc.umount2(path.encode(), MNT_DETACH), f"umount {path}")


def set_host_name(name: str) -> None:
    """Sets the host name of this UTS namespace."""
    _checked(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name))), "sethostname")


def make_read_only(path: str) -> None:
    """A mount and all mounts below it, without devices and set-user-id."""
    attributes = struct.pack("=QQQQ", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    call("mount_setattr", AT_FDCWD, path.encode(), AT_RECURSIVE, attributes, len(attributes))


def make_writable(path: str) -> None:
    """One mount that this process made read-only, and none below it."""
    attributes = struct.pack("=QQQQ", 0, MOUNT_ATTR_RDONLY, 0, 0)
    call("mount_setattr", AT_FDCWD, path.encode(), 0, attributes, len(attributes))


def prctl(option: int, first: int = 0, second: int = 0) -> None:
    """prctl(2)."""
    words = [ctypes.c_ulong(word) for word in (first, second, 0, 0)]
    _checked(_libc.prctl(ctypes.c_int(option), *words), f"prctl {option}")


def bound_capabilities() -> None:
    """No program that is executed can get one again; for a process that still has them."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(CAPABILITIES_MAX):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # there are no more, or we never had any
            break


def drop_capabilities() -> None:
    """All of them, now."""
    header = struct.pack("=Ii", 0x20080522, 0)
    call("capset", header, struct.pack("=6I", *[0] * 6))


def landlock_abi() -> int:
    """The version of Landlock that the kernel has; 0: none."""
    try:
        return call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def landlock(abi: int, readable: Sequence[str], writable: Sequence[str]) -> None:
    """Restricts access to files below these paths, without TCP, processes or abstract sockets outside.

    Limits unknown to a version of the ABI are left out, see `landlock_abi` (TCP from 4, the last from 6).
    """
    everything = (1 << FS_BITS[min(abi, len(FS_BITS) - 1)]) - 1
    fields = struct.pack(
        "=QQQ", everything, NET_TCP if abi >= 4 else 0, SCOPE_ABSTRACT_UNIX_AND_SIGNAL if abi >= 6 else 0
    )
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = call("landlock_create_ruleset", fields[:size], size, 0)
    reading = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR
    for paths, rights in ((readable, reading), (writable, everything)):
        for path in paths:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = (rights if os.path.isdir(path) else rights & FILE_RIGHTS) & everything  # pathlib is slow to load
            call("landlock_add_rule", ruleset, 1, struct.pack("=Qi", allowed, place), 0)
            os.close(place)
    call("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


def seccomp(program: bytes) -> None:
    """Filters the system calls of this process and all that it becomes. `program`: BPF, as `seccomp.py` makes it."""
    text = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HP", len(program) // 8, ctypes.addressof(text))
    call("seccomp", SECCOMP_SET_MODE_FILTER, 0, head)


def members(pid: int) -> list[int]:
    """All descendants of a process."""
    pids = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                for child in map(int, file.read().split()):
                    pids += [child, *members(child)]
    except OSError:  # it ended
        pass
    return pids


def is_ending(pid: int) -> bool:
    """Returns whether all descendants of a process are at their end:
    their files are closed, and others hear of that, before they are gone."""
    return all(map(_exits, members(pid)))


def _exits(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, *_, flags = file.read().rpartition(")")[2].split()[:7]
    except OSError:  # it is gone
        return True
    return state in "ZX" or bool(int(flags) & PF_EXITING)


def kill(pid: int) -> None:
    """SIGKILL, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
