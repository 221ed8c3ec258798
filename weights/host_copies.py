"""Verified copies of versions in the host's memory, from which engines load.

Invariant: a file under a digest's name holds exactly the bytes of that digest, tensors at `WeightsManifest.offsets`. It is
written under another name by whoever holds its lock, so that the workers of one host share one copy and one transfer; or it is a
link to the sealed file of a trainer on this host (`weights/sealed_file.py`), and nothing is transferred at all.
A lock ends with its process, and what nobody holds is removed by whoever comes next: kill -9 leaves nothing for long.
"""

import fcntl
import mmap
import os
import stat
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from claw_r1.weights import sealed_file
from claw_r1.weights.deadline import Deadline
from claw_r1.weights.digests import Digest, algorithm_of, short
from claw_r1.weights.errors import DigestMismatch, NoRoom
from claw_r1.weights.manifest import TensorShape, WeightsManifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

PIECE_BYTES = 4 << 20
"""So few that a piece is still in the cache when it is hashed."""
POLL_S = 0.02
STALLED_S = 10.0
"""Without a write, another worker's copy may never be finished: its process is stopped, or its source is."""
UNFINISHED = ".unfinished"
MEMORY = Path("/dev/shm")  # noqa: S108  # the memory file system of Linux; the directory in it is the user's own


class TensorBytes(Protocol):
    """The bytes of a version, tensor by tensor in manifest order, each from its first byte to its last."""

    def readinto(self, tensor: TensorShape, offset: int, piece: memoryview) -> None:
        """Fill the piece from byte `offset` of the tensor on. Raises WeightsError."""


class FillsFile:
    """A source that writes into the file itself: the pieces that its bytes are asked for are the file's own."""

    descriptor = -1
    """The file, which has its size."""


class OpenSource(Protocol):
    """Opens a source of a version, by a deadline for all that it gives."""

    def __call__(self, manifest: WeightsManifest, deadline: Deadline, /) -> AbstractContextManager[TensorBytes]: ...


class HostCopy:
    """One version in memory, for as long as this is not closed."""

    def __init__(self, descriptor: int, final: Path, *, is_found: bool = False) -> None:
        """is_found: it was in this host's memory already."""
        self.is_found = is_found
        self._descriptor = descriptor
        self._final = final

    @property
    def path(self) -> str:
        """The path by which processes of this user on this host can open it, whatever happens to its name."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    @property
    def directory(self) -> Path:
        """The folder of this host's copies."""
        return self._final.parent

    def again(self) -> "HostCopy":
        """The same bytes for another holder, also where they have no name any more: a sealed file loses its link before its
        last holder. Raises OSError."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        locked(descriptor, fcntl.LOCK_SH)
        return HostCopy(descriptor, self._final, is_found=True)

    def close(self) -> None:
        """Let go; the last holder frees the memory."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if locked(descriptor, fcntl.LOCK_EX) and is_at(descriptor, self._final):
            self._final.unlink(missing_ok=True)
        os.close(descriptor)

    def __del__(self) -> None:
        """Closes the file of a caller that was cancelled before the copy reached it."""
        self.close()


class HostCopies:
    """The copies of this user in one directory, which should lie in a memory file system."""

    def __init__(self, directory: Path, room: "CopyRoom | None" = None) -> None:
        """room: for the next copy that is not here. Raises OSError, also where another user could write to the
        directory: its copies are believed by their names."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = directory.lstat()
        if not stat.S_ISDIR(owner.st_mode) or owner.st_uid != os.getuid() or owner.st_mode & 0o022:
            raise PermissionError(f"{directory} is not this user's alone")
        self.directory, self._room = directory, room
        self.sweep()

    def has(self, digest: str) -> bool:
        """Returns whether a copy of this version is here, or is being made. A link from where processes have other numbers is none."""
        paths = self.directory.glob(f"{digest}*")
        return any(sealed_file.is_own(path) or not path.is_symlink() for path in paths)

    def take(self, manifest: WeightsManifest, open_source: OpenSource, deadline: Deadline) -> HostCopy:
        """A copy that is there, or that somebody is about to finish, else one from the source. Blocks.

        Raises WeightsError; what was written before is gone then.
        """
        algorithm = algorithm_of(manifest.digest)  # it becomes a file's name
        final = self.directory / manifest.digest
        while True:
            if (copy := _opened(final, manifest.bytes_flat)) is not None:
                return copy
            if (draft := self._begin(final)) is not None:
                break
            time.sleep(min(POLL_S, deadline.remaining_s("another worker's copy")))
        descriptor, unfinished = draft
        try:
            if (copy := _opened(final, manifest.bytes_flat)) is not None:  # it was finished just before we began
                unfinished.unlink()
                os.close(descriptor)
                return copy
            pages: mmap.mmap | None = None
            if self._room is not None:
                descriptor, pages = self._room.put(descriptor, unfinished, manifest.bytes_flat)
            pages = pages or _pages(descriptor, manifest.bytes_flat)
            if isinstance(open_source, FillsFile):
                open_source.descriptor = descriptor
            self._fill(descriptor, memoryview(pages), manifest, algorithm, open_source, deadline)
            unfinished.rename(final)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        locked(descriptor, fcntl.LOCK_SH)
        return HostCopy(descriptor, final)

    def _begin(self, final: Path) -> tuple[int, Path] | None:
        """A locked file to write to; None while another worker writes one. One that stands still is not waited for."""
        unfinished = final.with_name(final.name + UNFINISHED)
        with suppress(FileNotFoundError):
            if time.time() - unfinished.stat().st_mtime > STALLED_S:
                unfinished = final.with_name(f"{final.name}.{os.getpid()}{UNFINISHED}")
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT, 0o600)
        if locked(descriptor, fcntl.LOCK_EX) and is_at(descriptor, unfinished):
            return descriptor, unfinished
        os.close(descriptor)
        return None

    def sweep(self) -> None:
        """Remove what processes left behind that were killed."""
        for path in self.directory.iterdir():
            with suppress(OSError):
                if path.is_symlink():
                    _sweep_link(path)
                    continue
                descriptor = os.open(path, os.O_RDWR)
                if locked(descriptor, fcntl.LOCK_EX) and is_at(descriptor, path):
                    path.unlink()
                os.close(descriptor)

    def _fill(
        self,
        descriptor: int,
        flat: memoryview,
        manifest: WeightsManifest,
        algorithm: str,
        open_source: OpenSource,
        deadline: Deadline,
    ) -> None:
        with open_source(manifest, deadline) as source, _Hash(algorithm) as hashed:
            for tensor, start in manifest.offsets():
                for offset in range(0, tensor.nbytes, PIECE_BYTES):
                    piece = flat[start + offset : start + min(offset + PIECE_BYTES, tensor.nbytes)]
                    source.readinto(tensor, offset, piece)
                    hashed.update(piece)
                    os.utime(descriptor)  # other workers of this host see that it gets on
                    deadline.remaining_s(tensor.name)
            digest = hashed.text()
        if digest != manifest.digest:
            raise DigestMismatch(f"digest {short(digest)}, promised {short(manifest.digest)}")


class _Place(NamedTuple):
    descriptor: int
    path: Path
    pages: mmap.mmap


class CopyRoom:
    """Memory for the next copy, made ready while nobody waits for it: for one beside the others, or none.

    To find its pages takes a good part of the time of a transfer. A host has memory for two copies, since it holds both
    while it loads one; the second is this room as soon as the load is over. Safe to use from any thread: a fetch that
    was given up may still end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weights-room")
        self._place: Future[_Place | None] | None = None

    def prepare(self, copy: HostCopy, nbytes: int) -> None:
        """Room for another copy such as this one, if that had to be brought here. Returns at once; where there is no
        memory, there is no room."""
        self.close()
        if not copy.is_found:
            self._place = self._thread.submit(_made, copy.directory, nbytes)

    def nbytes_in(self, directory: Path) -> int:
        """The bytes that are ready there."""
        future = self._place
        place = future.result() if future is not None and future.done() else None
        return len(place.pages) if place is not None and place.path.parent == directory else 0

    def put(self, descriptor: int, unfinished: Path, nbytes: int) -> tuple[int, mmap.mmap | None]:
        """Puts the room in the place of an empty file, which this descriptor locks; returns the descriptor of what is
        there now, and the room's pages."""
        future = self._take_place()
        if future is None or (place := future.result()) is None:
            return descriptor, None
        is_fit = place.path.parent == unfinished.parent and len(place.pages) == nbytes
        if not is_fit or not is_at(place.descriptor, place.path):
            _let_go(place)
            return descriptor, None
        os.utime(place.descriptor)  # else it would seem to stand still
        place.path.rename(unfinished)
        os.close(descriptor)
        return place.descriptor, place.pages

    def close(self) -> None:
        """Lets go of it. Idempotent."""
        if (future := self._take_place()) is not None:
            future.add_done_callback(lambda future: _let_go(future.result()))

    def _take_place(self) -> "Future[_Place | None] | None":
        with self._lock:
            future, self._place = self._place, None
        return future


def _made(directory: Path, nbytes: int) -> _Place | None:
    """Locked, as what is unfinished: it is removed by whoever comes next when this process is gone."""
    with suppress(OSError):
        descriptor, name = tempfile.mkstemp(UNFINISHED, "room-", directory)
        with suppress(NoRoom):
            if locked(descriptor, fcntl.LOCK_EX):
                return _Place(descriptor, Path(name), _pages(descriptor, nbytes))
        Path(name).unlink(missing_ok=True)
        os.close(descriptor)
    return None


def _let_go(place: _Place | None) -> None:
    if place is not None:
        place.path.unlink(missing_ok=True)
        os.close(place.descriptor)


class _Hash:
    """A digest made in a thread of its own."""

    def __init__(self, algorithm: str) -> None:
        self._digest = Digest(algorithm)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weights-digest")

    def __enter__(self) -> "_Hash":
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def update(self, piece: memoryview) -> None:
        """Returns at once; the piece must not change any more."""
        self._thread.submit(self._digest.update, piece)

    def text(self) -> str:
        self._thread.shutdown()
        return self._digest.text()


def tensors(path: str, manifest: WeightsManifest) -> "Iterator[tuple[str, torch.Tensor]]":
    """(name, tensor) in manifest order: views of the mapped copy, good for as long as one of them is held."""
    import torch

    flat = torch.from_file(path, shared=False, size=manifest.bytes_flat, dtype=torch.uint8)
    for tensor, start in manifest.offsets():
        dtype: torch.dtype = getattr(torch, tensor.dtype)
        yield tensor.name, flat[start : start + tensor.nbytes].view(dtype).view(tensor.shape)


def _opened(final: Path, nbytes: int) -> HostCopy | None:
    sealed = sealed_file.opened(sealed_file.link_of(final.parent, final.name))
    if sealed is not None:
        if os.fstat(sealed).st_size >= nbytes:
            return HostCopy(sealed, final, is_found=True)
        os.close(sealed)  # these bytes, but not these tensors
    try:
        descriptor = os.open(final, os.O_RDWR)
    except FileNotFoundError:
        return None
    if locked(descriptor, fcntl.LOCK_SH) and is_at(descriptor, final):
        return HostCopy(descriptor, final, is_found=True)
    os.close(descriptor)  # its last holder is just removing it
    return None


def _sweep_link(path: Path) -> None:
    """Removes a link of where processes have these numbers, if it leads to no sealed file."""
    if not sealed_file.is_own(path):
        return
    if (descriptor := sealed_file.opened(path)) is None:
        path.unlink()
    else:
        os.close(descriptor)


def host_directories() -> list[Path]:
    """The folders of this user's copies, in memory and among temporary files; each, where its place is there at all."""
    places = (MEMORY, Path(tempfile.gettempdir()))
    return [place / f"claw-weights-{os.getuid()}" for place in places if place.is_dir()]


def shared_directory() -> Path | None:
    """Returns the first of them in which a trainer can show its versions to the workers of its host."""
    for directory in host_directories():
        with suppress(OSError):
            return HostCopies(directory).directory
    return None


def locked(descriptor: int, kind: int) -> bool:
    """Locks the file, and returns whether the lock is ours now."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(descriptor: int, path: Path) -> bool:
    """Returns whether the open file still has this name: between opening and locking, another may have removed or
    renamed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _pages(descriptor: int, nbytes: int) -> mmap.mmap:
    """All of the file's memory, now: a write to a memory file system that is full would be a signal, not an error. Raises NoRoom."""
    try:
        os.posix_fallocate(descriptor, 0, nbytes)
        pages = mmap.mmap(descriptor, nbytes)
    except OSError as error:
        raise NoRoom(f"no memory for a copy of {nbytes / 1e6:.0f} MB: {error.strerror}") from error
    sealed_file.populate(pages)
    return pages
