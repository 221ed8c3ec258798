"""The files of a checkpoint as bytes in host memory: taken at once, written later, from any thread.

DeepSpeed decides a file's content and torch its format, as usual; only the disk write is deferred. So a checkpoint
written while the next batch trains has the same bytes as one written at once. Beside each file is its sha256:
the optimizer's moments have no other digest, and one wrong bit in them changes every later version.
"""

import hashlib
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy
import torch

CHUNK_BYTES = 64 << 20
DIGEST = ".sha256"
"""Behind the name of a file: the name of its digest's."""


class HostMemory:
    """Flat uint8 tensors of one size, used again and again: fresh pages cost more than the copy into them."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._spare: deque[torch.Tensor] = deque()  # filled from any thread: its methods are atomic

    def chunk(self) -> torch.Tensor:
        """Returns a chunk that nobody uses. Memory that is never touched costs nothing, so a chunk need not be filled."""
        try:
            return self._spare.pop()
        except IndexError:
            return torch.empty(self._chunk_bytes, dtype=torch.uint8)

    def lend(self, holder: object) -> list[torch.Tensor]:
        """An empty list for chunks; its content returns after the last reference to the holder."""
        chunks: list[torch.Tensor] = []
        weakref.finalize(holder, self._spare.extend, chunks).atexit = False
        return chunks


class StateFiles:
    """Replaces DeepSpeed's writer of checkpoint files. Its memory is reused: one whole state stays allocated."""

    def __init__(self) -> None:
        self._memory = HostMemory(CHUNK_BYTES)
        self._files: list[tuple[Path, MemoryFile]] = []

    def save(self, state_dict: object, path: str) -> None:
        """Saves (`deepspeed.runtime.checkpoint_engine.CheckpointEngine.save`)."""
        from torch.utils.serialization import config

        file = MemoryFile(self._memory)
        with config.patch("save.compute_crc32", False):  # torch does not check it when it loads; it costs 4 copies
            torch.save(state_dict, file)
        self._files.append((Path(path), file))

    def copied(self, save: Callable[[], object]) -> Callable[[], None]:
        """Returns a function that writes the files that `save` has DeepSpeed save; it raises OSError."""
        self._files = []  # what a save that failed left
        save()
        files, self._files = self._files, []
        return partial(_write, files)


class MemoryFile:
    """A file in memory for `torch.save`. Its memory returns after the last reference."""

    def __init__(self, memory: HostMemory) -> None:
        self._memory = memory
        self._chunks = memory.lend(self)
        self._size = 0

    def write(self, data: memoryview | bytes) -> int:
        """Append."""
        source = numpy.frombuffer(data, dtype=numpy.uint8)
        done = 0
        while done < len(source):
            number, used = divmod(self._size, CHUNK_BYTES)
            if number == len(self._chunks):
                self._chunks.append(self._memory.chunk())
            part = source[done : done + CHUNK_BYTES - used]
            self._chunks[number].numpy()[used : used + len(part)] = part
            self._size += len(part)
            done += len(part)
        return done

    def flush(self) -> None:
        """Nothing is anywhere else."""

    def copy_to(self, path: Path) -> None:
        """With its digest beside it. Raises OSError."""
        sha = hashlib.sha256()
        with path.open("wb") as file:
            for number, chunk in enumerate(self._chunks):
                piece = chunk[: self._size - number * CHUNK_BYTES].numpy()
                sha.update(piece)
                file.write(piece)
        _digest_file(path).write_text(sha.hexdigest())


def damage(path: Path) -> str:
    """Returns why the bytes of a file are not those that were written, in a sentence; empty: they are. Reads every byte."""
    try:
        written = _digest_file(path).read_text()
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, UnicodeDecodeError) as error:
        return f"{path} cannot be checked: {' '.join(str(error).split())}"
    return "" if digest == written else f"{path} holds other bytes than were written"


def _digest_file(path: Path) -> Path:
    return path.with_name(path.name + DIGEST)


def _write(files: list[tuple[Path, MemoryFile]]) -> None:
    while files:  # the memory of each is free as soon as it is written
        path, file = files.pop()
        path.parent.mkdir(parents=True, exist_ok=True)
        file.copy_to(path)
