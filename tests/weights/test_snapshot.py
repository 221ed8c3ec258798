"""One pass over the tensors into a file that nobody can change, hashed by another thread, found by the workers of its host."""

import fcntl
import gc
import mmap
import os
import random
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch

from claw_r1.rollout.fetch import default_directory
from claw_r1.weights import sealed_file
from claw_r1.weights.digests import BLAKE3, SHA256, Digest, algorithm_of
from claw_r1.weights.errors import ManifestMismatch, NotStaged
from claw_r1.weights.host_copies import HostCopies, host_directories, shared_directory
from claw_r1.weights.manifest import TensorShape, WeightsManifest, memory_of
from claw_r1.weights.sealed_file import SealedFile, link_of
from claw_r1.weights.snapshot import Snapshots, WeightsSnapshot
from claw_r1.weights.staging import Staging, Stagings
from tests import children
from tests.weights.tensors import same, take
from tests.weights.test_host_copies import ROOT, Memory

Tensors = list[tuple[str, torch.Tensor]]


def version(number: int, length: int = 100) -> Tensors:
    return [("a", torch.full((length,), float(number))), ("b", torch.full((7,), number, dtype=torch.bfloat16))]


def shown(snapshots: Snapshots, tensors: Tensors) -> WeightsSnapshot:
    """A snapshot that can be found now: one that is shown before it is hashed is linked a moment after its digest is there."""
    snapshot = snapshots.take(tensors)
    snapshot.manifest  # noqa: B018  # it is hashed
    snapshot.show()
    return snapshot


def content(snapshot: WeightsSnapshot) -> bytes:
    return b"".join(part for _, part in snapshot.tensors())


def test_each_tensor_is_asked_for_once() -> None:
    """The manifest is a by-product of the pass; the tensors may change as soon as it is over."""
    tensors, passes = version(1), []

    def once() -> Iterator[tuple[str, torch.Tensor]]:
        passes.append(1)
        yield from tensors

    snapshot = Snapshots().take(once())
    assert snapshot.manifest == WeightsManifest.of(tensors)
    before = b"".join(memory_of(tensor) for _, tensor in tensors)
    for _, tensor in tensors:
        tensor.zero_()
    assert content(snapshot) == before
    assert passes == [1]


@pytest.mark.parametrize("lengths", [(10, 100_000, 10), (100_000, 100_000, 3)])
def test_memory_that_was_made_ready_holds_versions_of_any_size(lengths: tuple[int, ...]) -> None:
    """Larger than the one before, smaller, or as large; each keeps its bytes, and goes with its last holder."""
    snapshots, before = Snapshots(), descriptors()
    held = []
    for number, length in enumerate(lengths):
        held.append(snapshots.take(version(number, length)))
        assert held[-1].manifest == WeightsManifest.of(version(number, length))
        snapshots.prepare()
    for number, (snapshot, length) in enumerate(zip(held, lengths, strict=True)):
        assert content(snapshot) == b"".join(memory_of(tensor) for _, tensor in version(number, length))
    del held, snapshot
    snapshots.take(version(9)).manifest  # noqa: B018  # takes what was made ready
    gc.collect()
    assert descriptors() <= before + 1, "the thread may still hold the last of them"


def test_a_training_thread_does_not_wait_for_pages() -> None:
    """While another one has them cleared, for as long as that takes: the interpreter's lock is free."""
    file, spans = sealed_file.SealedFile(400 << 20), []

    def prefault() -> None:
        began = time.monotonic()
        file.prefault()
        spans.append(time.monotonic() - began)

    clearing = threading.Thread(target=prefault)
    stood_still, last = 0.0, time.monotonic()
    clearing.start()  # waits until it runs, and for the lock
    while clearing.is_alive():
        now = time.monotonic()
        stood_still, last = max(stood_still, now - last), now
    assert stood_still < 0.7 * spans[0]


def descriptors() -> int:
    return sum(
        str(path.readlink()).startswith("/memfd:claw") for path in Path("/proc/self/fd").iterdir() if path.is_symlink()
    )


def test_who_takes_a_snapshot_does_not_hash_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are hashed by another thread, in their order; the manifest waits for the last of them, and nothing else does."""
    threads, may_hash = set[int](), threading.Event()

    class Recording(Digest):
        def update(self, data: Any) -> None:
            may_hash.wait()
            threads.add(threading.get_ident())
            super().update(data)

    monkeypatch.setattr("claw_r1.weights.snapshot.Digest", Recording)
    snapshot = Snapshots().take(version(3))
    stagings = Stagings()
    stagings.add(Staging("run", 1, snapshot))
    with pytest.raises(NotStaged):
        stagings.get("run", 2, "any")
    assert not snapshot.digest.done()
    may_hash.set()
    digest = snapshot.manifest.digest
    monkeypatch.undo()
    assert digest == WeightsManifest.of(version(3)).digest
    assert threads
    assert threading.get_ident() not in threads
    assert stagings.get("run", 1, digest).snapshot is snapshot


def test_a_published_version_lets_those_before_it_go() -> None:
    """Two at most; of another run nothing changes."""
    stagings = Stagings()
    for number in (1, 2):
        stagings.add(Staging("run", number, WeightsSnapshot.of(version(number))))
    digests = {number: WeightsManifest.of(version(number)).digest for number in (1, 2)}
    stagings.settle("other", 2)
    assert stagings.get("run", 1, digests[1]).version == 1
    stagings.settle("run", 2)
    assert stagings.get("run", 2, digests[2]).version == 2
    with pytest.raises(NotStaged):
        stagings.get("run", 1, digests[1])


@pytest.mark.parametrize("algorithm", [BLAKE3, SHA256])
def test_a_digest_names_its_algorithm(algorithm: str) -> None:
    """A run that began with sha256 goes on with it, and its digests read as they always did."""
    snapshots = Snapshots()
    snapshots.algorithm = algorithm
    digest = snapshots.take(version(1)).manifest.digest
    assert digest == WeightsManifest.of(version(1), algorithm).digest
    assert algorithm_of(digest) == algorithm
    assert digest.startswith("b3:") is (algorithm == BLAKE3)


@pytest.mark.parametrize("text", ["", "../../etc/passwd", "b3:../x", "b4:" + "0" * 64, "0" * 63, "b3:" + "G" * 64])
def test_what_is_no_digest_names_no_file(text: str, tmp_path: Path) -> None:
    """An event may say anything; what it says becomes no path."""
    with pytest.raises(ManifestMismatch):
        take(HostCopies(tmp_path / "copies"), WeightsManifest((), text), Memory([]))


def test_nobody_writes_into_a_sealed_file() -> None:
    """Not through a descriptor that may write, not through a mapping, and it neither grows nor shrinks."""
    snapshot = WeightsSnapshot.of(version(1))
    before = content(snapshot)
    descriptor = os.open(snapshot.file.path, os.O_RDWR)
    for attempt in (
        lambda: os.pwrite(descriptor, b"other", 0),
        lambda: os.ftruncate(descriptor, 0),
        lambda: os.ftruncate(descriptor, 1 << 20),
        lambda: mmap.mmap(descriptor, 64),
    ):
        with pytest.raises(PermissionError):
            attempt()
    os.close(descriptor)
    assert content(snapshot) == before


@pytest.mark.parametrize("nbytes", [0, 4096])
def test_where_the_kernel_gives_no_such_file_plain_memory_holds_the_version(
    nbytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old kernels, and processes that may write no file so large; workers then ask by HTTP. Also where that shows in the middle."""
    truncate = os.ftruncate

    def limited(descriptor: int, size: int) -> None:
        if size > nbytes:
            raise OSError(27, "File too large")
        truncate(descriptor, size)

    monkeypatch.setattr("os.ftruncate", limited)
    snapshot = Snapshots(tmp_path).take(version(1, 100_000))
    assert snapshot.manifest == WeightsManifest.of(version(1, 100_000))
    assert content(snapshot) == b"".join(memory_of(tensor) for _, tensor in version(1, 100_000))
    assert snapshot.file.path is None
    assert not list(tmp_path.iterdir())


TRAINER = (
    "import sys, time; from tests.weights.test_snapshot import *\n"
    "kept = shown(Snapshots(Path(sys.argv[1])), version(1)); print(kept.manifest.digest, flush=True); time.sleep(600)"
)


def trainer(code: str, directory: Path) -> "subprocess.Popen[bytes]":
    arguments = [sys.executable, "-c", code, str(directory)]
    return children.start(arguments, stdout=subprocess.PIPE, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})


@pytest.mark.process
def test_a_worker_of_the_same_host_opens_the_trainers_file(tmp_path: Path) -> None:
    """Nothing is transferred. It outlives its trainer in who holds it, and its name is gone with the next who comes."""
    copies, manifest, source = HostCopies(tmp_path / "copies"), WeightsManifest.of(version(1)), Memory(version(1))
    serving = trainer(TRAINER, copies.directory)
    assert serving.stdout is not None
    assert serving.stdout.readline().decode().strip() == manifest.digest
    first, second = (take(copies, manifest, source) for _ in range(2))
    second.close()
    assert [*copies.directory.iterdir()] == [link_of(copies.directory, manifest.digest)], "who goes leaves it to others"
    serving.kill()
    serving.wait()
    assert same(first, version(1))
    assert not source.opened
    copies.sweep()
    assert not list(copies.directory.iterdir())
    assert same(take(copies, manifest, source), version(1))
    assert source.opened == 1


def test_a_link_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    """A number of a process is used again: another sealed file, a file of another kind, a pipe, nothing."""
    copies, manifest = HostCopies(tmp_path / "copies"), WeightsManifest.of(version(1))
    link = link_of(copies.directory, manifest.digest)
    other, plain, ends = WeightsSnapshot.of(version(2)), (tmp_path / "plain").open("w+b"), os.pipe()
    other.manifest  # noqa: B018  # it is sealed now
    plain.write(manifest.digest.encode())
    plain.flush()
    descriptors = [f"/proc/{os.getpid()}/fd/{number}" for number in (plain.fileno(), ends[0], 4000)]
    for target in (other.file.path, *descriptors, str(tmp_path / "plain")):
        link.symlink_to(target)
        source = Memory(version(1))
        copy = take(copies, manifest, source)
        assert source.opened == 1, target
        assert same(copy, version(1))
        copy.close()
        copies.sweep()
        assert not list(copies.directory.iterdir())
    plain.close()
    for end in ends:
        os.close(end)


def test_a_link_goes_with_its_snapshot(tmp_path: Path) -> None:
    """Unless it is another's by then: the same bytes may be taken again."""
    directory = HostCopies(tmp_path / "copies").directory
    snapshots = Snapshots(directory)
    first, second, third = (snapshots.take(version(1)) for _ in range(3))
    link = link_of(directory, third.manifest.digest)  # they are hashed in their order
    assert not list(directory.iterdir()), "what is not offered is not shown"
    first.show()
    del third
    gc.collect()
    assert is_open(link), "a younger one that was never offered takes nothing along"
    second.show()
    del first
    gc.collect()
    assert is_open(link), "it is the younger one's by now"
    del second
    gc.collect()
    assert not list(directory.iterdir())


def test_who_knows_a_digest_holds_no_bytes(tmp_path: Path) -> None:
    """A patch names the version before by its digest, which it keeps: that version's memory was let go one version late."""
    digest = Future[str]()
    snapshot = WeightsSnapshot((), SealedFile(64), digest, tmp_path)
    file = weakref.ref(snapshot.file)
    snapshot.show()  # before it is hashed, as a trainer does
    digest.set_result("b3:0")
    assert link_of(tmp_path, digest.result()).is_symlink()
    del snapshot
    gc.collect()
    assert file() is None


def is_open(link: Path) -> bool:
    descriptor = sealed_file.opened(link)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def test_links_of_another_name_space_are_left_alone(tmp_path: Path) -> None:
    """Containers may share the directory: a number of a process there says nothing here, and nobody removes what others find."""
    copies, manifest = HostCopies(tmp_path / "copies"), WeightsManifest.of(version(1))
    snapshot = shown(Snapshots(copies.directory), version(1))
    assert snapshot.manifest == manifest
    theirs = copies.directory / f"{manifest.digest}.of-1"
    assert copies.has(manifest.digest)
    link_of(copies.directory, manifest.digest).rename(theirs)
    copies.sweep()
    assert theirs.is_symlink()
    assert not copies.has(manifest.digest), "it can be opened there alone"
    source = Memory(version(1))
    copy = take(copies, manifest, source)
    assert same(copy, version(1))
    assert (source.opened, copies.has(manifest.digest)) == (1, True)


def test_a_link_of_another_name_space_chooses_no_place_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of another container cannot open what it leads to, and needs room for a copy of its own."""
    monkeypatch.setattr("claw_r1.weights.host_copies.MEMORY", tmp_path)
    too_large = WeightsManifest((TensorShape("t", "uint8", (1 << 60,)),), "b3:" + "7" * 64)
    memory, files = host_directories()
    memory.mkdir(mode=0o700)
    (memory / f"{too_large.digest}.of-1").symlink_to("/proc/7/fd/12")
    assert default_directory(too_large) == files
    copy = memory / f"{too_large.digest}.unfinished"
    descriptor = os.open(copy, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert default_directory(too_large) == memory, "a copy that is being made here is shared"
    os.close(descriptor)


def test_trainer_and_worker_look_in_the_same_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is told a directory, as nobody is on most hosts."""
    monkeypatch.setattr("claw_r1.weights.host_copies.MEMORY", tmp_path)
    snapshot = shown(Snapshots(shared_directory()), version(1))
    manifest, source = snapshot.manifest, Memory(version(1))
    copy = take(HostCopies(default_directory(manifest)), manifest, source)
    assert (copy.is_found, source.opened) == (True, 0)


def test_a_link_that_a_kill_left_half_made_is_swept(tmp_path: Path) -> None:
    """It has another name until it is whole."""
    copies = HostCopies(tmp_path / "copies")
    snapshot = shown(Snapshots(copies.directory), version(1))
    link_of(copies.directory, "unfinished-1").symlink_to(str(snapshot.file.path))
    copies.sweep()
    assert [*copies.directory.iterdir()] == [link_of(copies.directory, snapshot.manifest.digest)]


def test_a_directory_that_takes_no_link_costs_nothing_else(tmp_path: Path) -> None:
    """It is removed, full or another's: workers ask by HTTP then."""
    snapshot = Snapshots(tmp_path / "missing").take(version(1))
    snapshot.show()
    assert snapshot.manifest == WeightsManifest.of(version(1))


VERSIONS_FOR_EVER = (
    "import sys; from tests.weights.test_snapshot import *\n"
    "snapshots, kept = Snapshots(Path(sys.argv[1])), []\n"
    "print('begun', flush=True)\n"
    "for number in range(10**9): kept = [*kept, snapshots.take(version(number % 50, 5000))][-2:]; kept[-1].show(); snapshots.prepare()"
)


@pytest.mark.process
def test_whatever_is_killed_a_name_has_its_digest(tmp_path: Path) -> None:
    """A trainer is killed in the middle of publishing, again and again, while links of earlier ones lie there."""
    copies = HostCopies(tmp_path / "copies")
    manifests = {WeightsManifest.of(version(number, 5000)).digest: number for number in range(50)}
    dice, found = random.Random(7), 0
    for _ in range(3):
        serving = trainer(VERSIONS_FOR_EVER, copies.directory)
        assert serving.stdout is not None
        assert serving.stdout.readline()
        until = time.monotonic() + 1 + dice.random()
        while time.monotonic() < until:
            for link in list(copies.directory.iterdir()):
                descriptor = sealed_file.opened(link)
                if descriptor is not None:
                    found += 1
                    os.lseek(descriptor, 0, os.SEEK_SET)
                    expected = b"".join(
                        memory_of(tensor) for _, tensor in version(manifests[link.name.partition(".")[0]], 5000)[:1]
                    )
                    assert os.read(descriptor, len(expected)) == expected
                    os.close(descriptor)
        serving.kill()
        serving.wait()
    assert found
    copies.sweep()
    assert not list(copies.directory.iterdir())
