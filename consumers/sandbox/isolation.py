"""The isolation of a new process by itself before the code begins. It never returns to its caller.

Two processes: `first`, the init of the new process namespace, builds the file system, starts the program and reports how it ended
over a pipe; the program has neither that pipe nor, without capabilities and under seccomp, a way to look into `first`.
When `first` ends, the kernel ends everything in its namespace.
"""

import marshal
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from claw_r1.consumers.sandbox import kernel, seccomp

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
ROOT_BYTES, FILES_MAX, OPEN_FILES_MAX = 1 << 20, 2048, 64
USER = 1000
"""The user in the sandbox; outside it is the keeper's, or nobody where the keeper is root."""
NOBODY = 65534
WRITABLE = "/tmp"  # of the sandbox's own file system
FOLDER = WRITABLE + "/work"
OLD = "/.old"
SITES = (WRITABLE, "/mnt", "/opt", "/srv", "/media", "/home", "/run", "/var", "/root", "/boot")
"""Folders that every machine has some of; over one of them, in its own view, a sandbox builds its root."""
DESCRIPTORS_MAX = 4096
SPARE_BYTES = 256 << 20
"""Address space beside twice the memory: libraries and stacks are mapped, hardly used. Real
use is counted outside."""

Program = Mapping[str, Any]
"""argv, env, files {path: bytes}, cpu_s, memory_bytes, processes, files_bytes; plain, since it
crosses a process border."""
Descriptors = Sequence[int]
"""Descriptors that the program gets as 0, 1, 2, …"""


def first(program: Program, ends: Descriptors, report: int, sync: int, setup: Mapping[str, Any]) -> NoReturn:
    """The life of the namespace's init. Reports ("ended", wait status), or ("failed", why)."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        if os.read(sync, 1) != b"+":  # the keeper is gone, or could not map our users
            os._exit(1)
        build_root(setup["readable"], program["files_bytes"])
        fill(program["files"], setup)
        kernel.prctl(
            kernel.PR_SET_DUMPABLE, 0
        )  # nobody of our own user looks into us; the program's exec takes it back
        pid = os.fork()
        if pid == 0:
            become(program, ends, report, setup)
        os.closerange(0, report)  # also what the keeper had: a socket that we hold open would never end
        os.closerange(report + 1, DESCRIPTORS_MAX)
        while True:  # orphans are ours to reap
            ended, status = os.waitpid(-1, 0)
            if ended == pid:
                break
        os.write(report, marshal.dumps(("ended", status)))
    except BaseException as error:  # noqa: BLE001 - told to the keeper
        os.write(report, marshal.dumps(("failed", str(error))))
    os._exit(0)


def build_root(readable: Sequence[str], files_bytes: int) -> None:
    """A root of its own: programs and libraries to read, some devices, its own /proc, and one place to write.

    Raises OSError, with the path, for something of `readable` that cannot be brought.
    """
    sources = {path: os.path.realpath(path) for path in readable}  # as links of the old root lead
    base = site([*sources, *sources.values()])
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    _tmpfs(base, f"size={ROOT_BYTES},mode=755")
    os.mkdir(base + OLD)  # pathlib is slow to load
    os.chdir(base)
    kernel.call("pivot_root", b".", OLD.encode()[1:])
    os.chdir("/")
    for path in (*SYSTEM, *DEVICES):
        _bring(path)
    for folder in ("/proc", WRITABLE):
        os.makedirs(folder, exist_ok=True)
    _tmpfs(WRITABLE, f"size={files_bytes},nr_inodes={FILES_MAX},mode=1777")  # before what is read: it may lie there
    for path in sorted(sources):  # a folder before what lies in it
        _bind(sources[path], path)
    try:
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC, "subset=pid")
    except OSError:  # in a container whose own /proc is masked: then there is none
        pass
    os.symlink(WRITABLE, "/dev/shm")
    kernel.let_go(OLD)
    os.rmdir(OLD)
    kernel.make_read_only("/")
    kernel.make_writable(WRITABLE)
    os.mkdir(working_folder(readable))
    kernel.set_host_name("sandbox")


def site(paths: Sequence[str]) -> str:
    """A folder without any of the paths: its content is hidden while the root is built over it. Raises OSError."""
    for path in SITES:
        if os.path.isdir(path) and not os.path.islink(path) and not any(_within(other, path) for other in paths):
            return path
    raise OSError(f"each of {', '.join(SITES)} holds something that the sandbox must read, or is not there")


def working_folder(readable: Sequence[str]) -> str:
    """Returns the program's first folder: a writable one without any read-only content."""
    folder, number = FOLDER, 1
    while any(_within(path, folder) for path in readable):
        folder, number = f"{FOLDER}-{number}", number + 1
    return folder


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _tmpfs(path: str, options: str) -> None:
    kernel.mount("tmpfs", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)


def _bring(path: str) -> None:
    """A path of the system to the same place in the new root, a link as a link; what is not there is left out."""
    old = OLD + path
    if os.path.lexists(path) or not os.path.lexists(old):
        return
    if os.path.islink(old):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(os.readlink(old), path)
    else:
        _bind(path, path)


def _bind(source: str, path: str) -> None:
    """Mounts `source` of the old root at `path` of the new one. Raises OSError, with the path, where that cannot be."""
    if path in ("/", WRITABLE) or any(_within(path, own) for own in ("/proc", "/dev/shm")):
        raise OSError(f"{path} cannot be brought into the sandbox, which has one of its own")
    if os.path.lexists(path):  # it lies in something that was brought
        return
    old = OLD + source
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.isdir(old):
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    kernel.mount(old, path, "", kernel.MS_BIND | kernel.MS_REC)
    kernel.make_read_only(path)  # at once: a folder for the next one must not be made in the machine's own


def fill(files: Mapping[str, bytes], setup: Mapping[str, Any]) -> None:
    """Writes the files, below the folder and nowhere else. Raises ValueError for another path, OSError where they do not fit."""
    folder = setup["folder"]
    for name, content in files.items():
        path = os.path.normpath(os.path.join(folder, name))
        if not path.startswith(folder + "/"):
            raise ValueError(f"{name!r} lies outside of the sandbox")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
    if setup["root"]:
        for place, _, names in os.walk(folder):
            for path in (place, *(os.path.join(place, name) for name in names)):
                os.chown(path, USER, USER)
    os.chdir(folder)


def become(program: Program, ends: Descriptors, report: int, setup: Mapping[str, Any]) -> NoReturn:
    """Shuts this process in and makes it the program. Where the kernel refuses, nothing runs and the keeper hears why."""
    try:
        os.setsid()
        spare = [os.dup(end) for end in ends]  # above all numbers that are about to be taken
        while min(spare) < len(spare):
            spare = [os.dup(end) for end in spare]
        for number, end in enumerate(spare):
            os.dup2(end, number)
        for name, (soft, hard) in limits(program).items():
            resource.setrlimit(getattr(resource, name), (soft, hard))
        kernel.bound_capabilities()
        if setup["root"]:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
        kernel.drop_capabilities()
        if setup["landlock"]:
            kernel.landlock(setup["landlock"], ("/",), (WRITABLE, "/dev"))
        kernel.seccomp(seccomp.program())
        for number in (signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(program["argv"][0], program["argv"], program["env"])
    except BaseException as error:  # noqa: BLE001 - told to the keeper
        os.write(report, marshal.dumps(("failed", str(error))))
    os._exit(1)


def limits(program: Program) -> dict[str, tuple[int, int]]:
    """Returns the limits of each process; the memory of all together is watched from outside."""
    cpu_s, space = max(1, int(program["cpu_s"] + 0.999)), 2 * program["memory_bytes"] + SPARE_BYTES
    fixed = {
        "RLIMIT_NPROC": program["processes"] + 1,  # `first` counts where it is the same user
        "RLIMIT_AS": space,
        "RLIMIT_FSIZE": program["files_bytes"],
        "RLIMIT_NOFILE": OPEN_FILES_MAX,
        "RLIMIT_CORE": 0,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_MEMLOCK": 0,
    }
    return {"RLIMIT_CPU": (cpu_s, cpu_s + 1), **{name: (value, value) for name, value in fixed.items()}}


assert sys.platform == "linux"
