"""The adapter that an engine serves, in a directory from which vLLM reads it.

vLLM forgets its adapters when an update of its weights ends, and reads the one that a request names at the next step.
Invariant: what the directory holds changes while the engine is paused in an update, or before it is started, so the
label of that update is the adapter's.
"""

import json
import mmap
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from claw_r1.eventlog.locks import take_lock_of_folder
from claw_r1.schemas.events import AdapterSpec
from claw_r1.weights.checkpoint import write_adapter
from claw_r1.weights.manifest import TensorShape, WeightsManifest

BLOCK = re.compile(r"\.\d+\..*?(\w+)\.weight$")
PREFIX = "claw-served-adapter-"
"""Not that of 0.1, whose workers hold no lock: one that runs beside this one would lose its folder."""
VARIABLE = "CLAW_ROLLOUT_ADAPTER"
"""Names the directory to the engine's processes."""


class AdapterPlace:
    """The directory of one worker; gone with this, or once the next one begins on this machine after a kill."""

    def __init__(self) -> None:
        _sweep()
        self._folder, lock = _locked_folder()
        weakref.finalize(self, os.close, lock)
        self.path = Path(self._folder.name) / "served"

    def clear(self) -> None:
        """Serves an adapter that changes nothing; for an engine that is started. What an engine left that ended in an update
        goes. Raises OSError."""
        for path in self.path.parent.iterdir():
            path.unlink() if path.is_symlink() else shutil.rmtree(path)
        self.serve(self._written([], rank=1, alpha=1))

    def prepare(self, copy: str, manifest: WeightsManifest, spec: AdapterSpec) -> Path:
        """Writes an adapter for `serve`, or nothing. copy: the path of its verified bytes. Raises OSError."""
        with Path(copy).open("rb") as file:
            flat = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return self._written(list(_tensors(manifest, flat)), rank=spec.rank, alpha=spec.alpha)

    def serve(self, draft: Path) -> None:
        """Puts it in the place of the one before; a full disk does not keep it from that. Raises OSError."""
        before = self.path.readlink() if self.path.is_symlink() else None
        _link_to(draft).replace(self.path)
        if before is not None:
            shutil.rmtree(before, ignore_errors=True)

    def _written(self, tensors: list[tuple[TensorShape, memoryview]], *, rank: int, alpha: int) -> Path:
        draft = Path(tempfile.mkdtemp(dir=self._folder.name))
        try:
            write_adapter(draft, tensors, rank=rank, alpha=alpha)
            _link_to(draft).symlink_to(draft)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return draft


def _locked_folder() -> tuple[tempfile.TemporaryDirectory[str], int]:
    """A folder, and the descriptor that says that its process lives."""
    while True:
        folder = tempfile.TemporaryDirectory(prefix=PREFIX)
        try:
            lock = take_lock_of_folder(Path(folder.name))
        except OSError:  # a file system without such locks, where nobody sweeps either
            lock = os.open(folder.name, os.O_RDONLY)
        if lock is not None:
            return folder, lock  # else another worker that begins has just swept it: it was nobody's for a moment


def _sweep() -> None:
    """Removes the folders of workers that were killed, each as large as the adapters in it."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's
            if (lock := take_lock_of_folder(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def linear_layers(model: Path) -> list[str]:
    """Returns the ends of the names of the linear layers in a model's blocks, as its files have them."""
    shapes: dict[str, list[int]] = {}
    for path in sorted(model.glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        shapes |= {name: entry["shape"] for name, entry in header.items()}
    named = (BLOCK.search(name) for name, shape in shapes.items() if len(shape) == 2)
    return sorted({match[1] for match in named if match})


def _link_to(draft: Path) -> Path:
    return draft.with_suffix(".link")


def _tensors(manifest: WeightsManifest, flat: memoryview) -> Iterator[tuple[TensorShape, memoryview]]:
    return ((spec, flat[begin : begin + spec.nbytes]) for spec, begin in manifest.offsets())
