"""Files in memory that nobody can change any more, each under the digest of what it holds.

A sealed file has no place in a file system: the kernel frees it with its last holder, so that nothing is left of a process that
was killed, and no small /dev/shm limits it. What stands under the digest in the directory of this host's copies is a link to the
holder's open file. Such a link may outlive its process, and another process may get the same number: so whoever follows it looks for
the seals, and for the digest behind the bytes, which only the file has that the link was made for.
"""

import ctypes
import fcntl
import mmap
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

NAME = "claw-weights"
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
POPULATE_WRITE = 23
"""madvise(2), Linux 5.14: the pages are there before the first byte is."""
_HELD = re.compile(r"/proc/\d+/fd/\d+")


class SealedFile:
    """A file that is written once. Not for several threads until it is sealed.

    Where the kernel gives none (it is older, or the process may write no file so large), the bytes lie in memory that is this process's
    alone: `path` is None then, and nobody else finds them.
    """

    def __init__(self, nbytes: int) -> None:
        """nbytes: the room that is prepared; it grows where it does not suffice."""
        self._descriptor: int | None = None
        self._room: mmap.mmap | None = None
        self._bytes: torch.Tensor | None = None
        self._reading: memoryview | None = None
        with suppress(OSError, AttributeError):
            self._descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._make_room(max(nbytes, mmap.PAGESIZE))

    def __del__(self) -> None:
        """Lets go: the last of all holders frees the memory."""
        if self._descriptor is not None:
            os.close(self._descriptor)

    @property
    def path(self) -> str | None:
        """The path by which processes of this user on this host can open it as long as this one holds it."""
        return None if self._descriptor is None else f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def prefault(self) -> None:
        """Prepare the pages of the room."""
        if self._room is not None:
            populate(self._room)

    def room(self, begin: int, length: int) -> "torch.Tensor":
        """[length] uint8: the bytes from `begin` on, to be written."""
        if self._bytes is None or begin + length > len(self._bytes):
            self._make_room(max(begin + length, 2 * (0 if self._bytes is None else len(self._bytes))))
        assert self._bytes is not None
        return self._bytes[begin : begin + length]

    def finish(self, nbytes: int) -> memoryview:
        """The first `nbytes` are all that it holds; returns them to be read. Views of `room` must be gone by now."""
        assert self._room is not None
        self._bytes = None
        if self._descriptor is None:
            self._reading = memoryview(self._room)[:nbytes].toreadonly()
            return self._reading
        self._room.close()  # no seal while anybody could write by it
        self._room = None
        os.ftruncate(self._descriptor, nbytes)
        self._reading = memoryview(mmap.mmap(self._descriptor, nbytes, mmap.MAP_PRIVATE, mmap.PROT_READ))
        return self._reading

    def seal(self, digest: str) -> None:
        """Write the digest behind the bytes, and let nobody write anything from now on."""
        if self._descriptor is not None:
            os.pwrite(self._descriptor, digest.encode(), os.fstat(self._descriptor).st_size)
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, SEALS)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def read(self) -> memoryview:
        """The bytes, once they are finished."""
        assert self._reading is not None
        return self._reading

    def link(self, directory: Path, digest: str) -> None:
        """Let other processes of this user find it. Raises OSError."""
        if self.path is not None:
            beside = link_of(directory, f"unfinished-{os.getpid()}")  # swept like any other where a kill leaves it
            beside.unlink(missing_ok=True)
            beside.symlink_to(self.path)
            beside.rename(link_of(directory, digest))

    def _make_room(self, nbytes: int) -> None:
        """More of it, or the first; bytes that are written already stay."""
        import torch  # here: a supervisor follows links and never touches a tensor

        before, self._room = self._bytes, self._mapped(nbytes)
        self._bytes = torch.frombuffer(self._room, dtype=torch.uint8)
        if self._descriptor is None and before is not None:
            self._bytes[: len(before)] = before

    def _mapped(self, nbytes: int) -> mmap.mmap:
        """The file with this size, else memory without one."""
        if self._descriptor is not None:
            try:
                os.ftruncate(self._descriptor, nbytes)
                return mmap.mmap(self._descriptor, nbytes)
            except OSError:
                os.close(self._descriptor)
                self._descriptor = None
        return mmap.mmap(-1, nbytes)


def populate(room: mmap.mmap) -> None:
    """Have the kernel find and clear the pages now, which else whoever writes first waits for.

    An older kernel does so later. Not by `mmap.madvise`, which keeps all other threads of Python waiting.
    """
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(len(room)), POPULATE_WRITE)


def link_of(directory: Path, digest: str) -> Path:
    """The name of a link to the version with this digest. A number of a process means something in its own name space only, so that
    containers that share the directory have links of their own."""
    return directory / f"{digest}{_own_ending()}"


def is_own(path: Path) -> bool:
    """Returns whether this is a link that was made where processes have the numbers that they have here."""
    return path.is_symlink() and path.name.endswith(_own_ending())


def _own_ending() -> str:
    return f".of-{Path('/proc/self/ns/pid').stat().st_ino}"


def opened(link: Path) -> int | None:
    """A descriptor of the sealed file that a link names, which holds it from now on; None where the link leads to no such file."""
    try:
        held = str(link.readlink())
        if not (_HELD.fullmatch(held) and str(Path(held).readlink()).startswith(f"/memfd:{NAME}")):
            return None
        descriptor = os.open(held, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    if _is_sealed_as(descriptor, link.name.removesuffix(_own_ending())):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return descriptor
    os.close(descriptor)
    return None


def unlink(link: Path, path: str) -> None:
    """Remove a link to the file that has this path."""
    with suppress(OSError):
        if str(link.readlink()) == path:
            link.unlink()


def _is_sealed_as(descriptor: int, digest: str) -> bool:
    """Returns whether this is a file of this user that nobody can change, with this digest behind its bytes."""
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:  # a file of another kind
        return False
    name, file = digest.encode(), os.fstat(descriptor)
    is_digest_behind = os.pread(descriptor, len(name), max(0, file.st_size - len(name))) == name
    return seals & SEALS == SEALS and file.st_uid == os.getuid() and is_digest_behind
