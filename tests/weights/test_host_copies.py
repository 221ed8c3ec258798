"""Laws of the copies that a host's workers share, with sources that count, stop and lie."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given

from claw_r1.weights.deadline import Deadline
from claw_r1.weights.errors import DigestMismatch, NoRoom, TransferFailed
from claw_r1.weights.host_copies import STALLED_S, HostCopies, TensorBytes
from claw_r1.weights.manifest import TensorShape, WeightsManifest, memory_of
from tests import children
from tests.small_disk import run_on_small_disk
from tests.weights.tensors import Tensors, same, take, tensors_of
from tests.weights.test_manifest import make, models

ROOT = Path(__file__).parents[2]


class Memory:
    """A source in this process; `gate` holds it before the first byte."""

    def __init__(self, tensors: Tensors) -> None:
        self._bytes = {name: memory_of(tensor) for name, tensor in tensors}
        self.opened = 0
        self.gate = threading.Event()
        self.gate.set()

    @contextmanager
    def __call__(self, manifest: WeightsManifest, deadline: Deadline) -> Iterator[TensorBytes]:
        self.opened += 1
        assert self.gate.wait(30)
        yield self

    def readinto(self, tensor: TensorShape, offset: int, piece: memoryview) -> None:
        piece[:] = self._bytes[tensor.name].cast("B")[offset : offset + len(piece)]


@pytest.fixture
def copies(tmp_path: Path) -> HostCopies:
    return HostCopies(tmp_path / "copies")


@given(rows=models)
def test_any_tensors_come_back(tmp_path_factory: pytest.TempPathFactory, rows: list[object]) -> None:
    """Of any dtype and shape, none and empty ones included."""
    tensors = make(rows)  # type: ignore[arg-type]  # what `models` draws
    copies = HostCopies(tmp_path_factory.mktemp("copies"))
    copy = take(copies, WeightsManifest.of(tensors), Memory(tensors))
    assert same(copy, tensors)
    copy.close()
    assert not list(copies.directory.iterdir())


def test_workers_of_a_host_fetch_a_version_once(copies: HostCopies) -> None:
    """Who comes while another fetches waits for it, who comes later finds it, and the last to go frees the memory."""
    tensors = tensors_of(1)
    manifest, source = WeightsManifest.of(tensors), Memory(tensors)
    source.gate.clear()
    taken = []
    threads = [threading.Thread(target=lambda: taken.append(take(copies, manifest, source))) for _ in range(4)]
    for thread in threads:
        thread.start()
    source.gate.set()
    for thread in threads:
        thread.join(30)
    taken.append(take(copies, manifest, source))
    assert source.opened == 1
    for copy in taken[:-1]:
        copy.close()
        copy.close()
    assert same(taken[-1], tensors)
    taken[-1].close()
    assert not list(copies.directory.iterdir())


def test_a_worker_that_stands_still_holds_nobody_else_up(copies: HostCopies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a copy that does not grow makes one of its own; both are good, and nothing stays in the end."""
    monkeypatch.setattr("claw_r1.weights.host_copies.STALLED_S", 0.2)
    tensors = tensors_of(1)
    manifest, stopped = WeightsManifest.of(tensors), Memory(tensors)
    stopped.gate.clear()
    taken = []
    thread = threading.Thread(target=lambda: taken.append(take(copies, manifest, stopped)))
    thread.start()
    while not stopped.opened:
        time.sleep(0.01)
    copy = take(copies, manifest, Memory(tensors))
    assert same(copy, tensors)
    stopped.gate.set()
    thread.join(30)
    assert same(taken[0], tensors)
    for each in (copy, *taken):
        each.close()
    assert not list(copies.directory.iterdir())


def test_a_copy_that_gets_on_is_told_from_one_that_stands_still(copies: HostCopies) -> None:
    """Its file's time is of the last piece, which no write says that goes through memory."""
    ages_s = []

    class Aging(Memory):
        def readinto(self, tensor: TensorShape, offset: int, piece: memoryview) -> None:
            (file,) = copies.directory.iterdir()
            ages_s.append(time.time() - file.stat().st_mtime)
            os.utime(file, (1, 1))
            super().readinto(tensor, offset, piece)

    tensors = tensors_of(1)
    take(copies, WeightsManifest.of(tensors), Aging(tensors))
    assert len(ages_s) > 1
    assert max(ages_s) < STALLED_S


def test_a_copy_is_there_until_its_last_holder_lets_it_go(copies: HostCopies) -> None:
    """Who has it already takes it again without asking anybody, and either may let go first."""
    tensors = tensors_of(1)
    first = take(copies, WeightsManifest.of(tensors), Memory(tensors))
    second = first.again()
    first.close()
    assert HostCopies(copies.directory).has(WeightsManifest.of(tensors).digest)
    assert same(second, tensors)
    second.close()
    assert not list(copies.directory.iterdir())


def test_a_fetch_that_fails_leaves_nothing_and_the_next_may_try(copies: HostCopies) -> None:
    """Other bytes, a source that breaks: the error is told, no file stays, and a good source is asked then."""
    tensors = tensors_of(1)
    manifest = WeightsManifest.of(tensors)
    with pytest.raises(DigestMismatch):
        take(copies, manifest, Memory(tensors_of(2)))
    broken = Memory(tensors)
    broken.readinto = _breaks  # type: ignore[method-assign]  # a method that counts or breaks
    with pytest.raises(TransferFailed):
        take(copies, manifest, broken)
    assert not list(copies.directory.iterdir())
    assert same(take(copies, manifest, Memory(tensors)), tensors)


def _breaks(tensor: TensorShape, offset: int, piece: memoryview) -> None:
    raise TransferFailed("gone")


def test_what_a_killed_process_left_is_removed_by_the_next(copies: HostCopies) -> None:
    """A process killed with a copy, and one killed in the middle of another, leave files; a new worker sweeps them."""
    code = (
        "import sys, time; from tests.weights.test_host_copies import *\n"
        "copies = HostCopies(Path(sys.argv[1])); kept = take(copies, WeightsManifest.of(tensors_of(1)), Memory(tensors_of(1)))\n"
        "held = Memory(tensors_of(2)); held.gate.clear()\n"
        "threading.Thread(target=take, args=(copies, WeightsManifest.of(tensors_of(2)), held)).start()\n"
        "while not held.opened: time.sleep(0.01)\n"  # a file that is not locked yet is swept, and begun again
        "print('held', flush=True)"
    )
    victim = children.start(
        [sys.executable, "-c", code, str(copies.directory)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert victim.stdout is not None
    assert victim.stdout.readline()
    copies.sweep()
    assert len(list(copies.directory.iterdir())) == 2, "what a living process holds is not removed"
    victim.kill()
    victim.wait()
    HostCopies(copies.directory)
    assert not list(copies.directory.iterdir())


def test_a_host_without_memory_says_so(copies: HostCopies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a byte is asked for, and without a file that stays."""

    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    source = Memory(tensors_of(1))
    with pytest.raises(NoRoom, match="no memory for a copy"):
        take(copies, WeightsManifest.of(tensors_of(1)), source)
    assert not source.opened
    assert not list(copies.directory.iterdir())


FULL = """
import sys
from pathlib import Path
import torch
from claw_r1.weights.errors import NoRoom
from claw_r1.weights.host_copies import CopyRoom, HostCopies
from claw_r1.weights.manifest import WeightsManifest
from tests import patience
from tests.weights.tensors import same, take
from tests.weights.test_host_copies import Memory
directory = Path(sys.argv[1])
copies, tensors = HostCopies(directory / "copies"), [("a", torch.arange(150_000, dtype=torch.int32))]
first, room = take(copies, WeightsManifest.of(tensors), Memory(tensors)), CopyRoom()
room.prepare(first, 600_000)
room.close()
more = [("a", torch.arange(150_001, dtype=torch.int32))]
try:
    take(copies, WeightsManifest.of(more), Memory(more))
except NoRoom as error:
    print(error)
assert same(first, tensors), "who holds a version has it"
first.close()
patience.until(lambda: not [*copies.directory.iterdir()])  # a room that was not taken goes when its thread has it
second = take(copies, WeightsManifest.of(more), Memory(more))
print(same(second, more))
"""


@pytest.mark.process
def test_a_memory_file_system_that_is_full_has_room_again_when_a_version_goes(tmp_path: Path) -> None:
    """A real one of a megabyte, in a name space of its own: one version fits, a second does not, until the first is let go."""
    words, is_same = run_on_small_disk(FULL, tmp_path, "1M")
    assert "no memory for a copy" in words
    assert is_same == "True"
