"""Laws of the memory that is made ready for the next copy."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from claw_r1.weights.host_copies import CopyRoom, HostCopies, HostCopy
from claw_r1.weights.manifest import WeightsManifest
from tests import children
from tests.patience import until
from tests.weights.tensors import Tensors, same, take, tensors_of
from tests.weights.test_host_copies import ROOT, Memory


@pytest.fixture
def room() -> CopyRoom:
    return CopyRoom()


@pytest.fixture
def copies(tmp_path: Path, room: CopyRoom) -> HostCopies:
    return HostCopies(tmp_path / "copies", room)


def taken(copies: HostCopies, tensors: Tensors) -> HostCopy:
    return take(copies, WeightsManifest.of(tensors), Memory(tensors))


def prepared(room: CopyRoom, copy: HostCopy, seed: int = 1) -> Path:
    """The file of the room, once that is ready."""
    room.prepare(copy, WeightsManifest.of(tensors_of(seed)).bytes_flat)
    until(lambda: room.nbytes_in(copy.directory))
    (file,) = copy.directory.glob("room-*")
    return file


def test_the_next_copy_lies_in_the_room_that_was_made_for_it(copies: HostCopies, room: CopyRoom) -> None:
    """Its file is the very one; a room is used once, and nothing is left in the end."""
    first = taken(copies, tensors_of(1))
    file = prepared(room, first)
    assert file.stat().st_blocks > 0
    number, second = file.stat().st_ino, taken(copies, tensors_of(2))
    assert same(second, tensors_of(2))
    assert Path(second.path).stat().st_ino == number
    assert room.nbytes_in(copies.directory) == 0
    for copy in (first, second, taken(copies, tensors_of(3))):
        copy.close()
    assert not list(copies.directory.iterdir())


def test_who_finds_copies_needs_no_room_and_another_size_gives_it_up(copies: HostCopies, room: CopyRoom) -> None:
    """The version of another worker is found; one with more tensors has a file of its own."""
    first = taken(copies, tensors_of(1))
    prepared(room, first)
    more = [*tensors_of(2), *((f"more {name}", tensor) for name, tensor in tensors_of(3))]
    second = taken(copies, more)
    assert same(second, more)
    assert not list(copies.directory.glob("room-*"))
    prepared(room, second)
    room.prepare(taken(copies, more), 1000)
    until(lambda: not list(copies.directory.glob("room-*")))
    prepared(room, second)
    room.close()
    room.close()
    assert not list(copies.directory.glob("room-*"))


def test_a_copy_in_a_room_gets_on_from_its_beginning(copies: HostCopies, room: CopyRoom) -> None:
    """A room waits for hours; who comes while it is filled does not take it for one that stands still."""
    os.utime(prepared(room, taken(copies, tensors_of(1))), (1, 1))
    tensors = tensors_of(2)
    manifest, source = WeightsManifest.of(tensors), Memory(tensors)
    source.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        filling = pool.submit(take, copies, manifest, source)
        until(lambda: source.opened)
        assert HostCopies(copies.directory)._begin(copies.directory / manifest.digest) is None
        source.gate.set()
        assert same(filling.result(), tensors)


def test_two_who_come_at_once_do_not_share_a_room(copies: HostCopies, room: CopyRoom) -> None:
    """One has it, the other a file of its own; both copies are good."""
    prepared(room, taken(copies, tensors_of(1)))
    gate = threading.Barrier(2)

    def come(seed: int) -> bool:
        gate.wait()
        return same(taken(copies, tensors_of(seed)), tensors_of(seed))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(come, (2, 3))) == [True, True]


def test_a_room_that_was_removed_is_no_room(copies: HostCopies, room: CopyRoom) -> None:
    """Whoever sweeps before it is locked takes it away."""
    prepared(room, taken(copies, tensors_of(1))).unlink()
    assert same(taken(copies, tensors_of(2)), tensors_of(2))


@pytest.mark.process
def test_the_room_of_a_killed_process_is_removed_by_the_next(copies: HostCopies) -> None:
    """One that lives keeps it."""
    code = (
        "import sys, time; from tests.weights.test_host_copies_room import *\n"
        "room = CopyRoom(); copies = HostCopies(Path(sys.argv[1]), room); prepared(room, taken(copies, tensors_of(1)))\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    argv = [sys.executable, "-c", code, str(copies.directory)]
    victim = children.start(argv, stdout=subprocess.PIPE, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    assert victim.stdout is not None
    assert victim.stdout.readline()
    copies.sweep()
    assert list(copies.directory.glob("room-*"))
    victim.kill()
    victim.wait()
    copies.sweep()
    assert not list(copies.directory.iterdir())
