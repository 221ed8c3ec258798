"""A version made of the one before it: any changes come back, and nothing that is not the version gets its name."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_r1.weights.errors import DigestMismatch, TransferFailed, WeightsError
from claw_r1.weights.host_copies import HostCopies, HostCopy
from claw_r1.weights.manifest import WeightsManifest
from claw_r1.weights.patch import Patched, patch_of
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.sources import Base, FromTrainer
from claw_r1.weights.transfer_server import Sent, TransferServer
from tests.patience import until
from tests.weights.tensors import Tensors, same, take

WORDS = 300_000
"""More than a gap of a patch can say."""


@given(
    words=st.integers(1, WORDS),
    changed=st.lists(st.integers(0, WORDS - 1), max_size=30),
    cuts=st.lists(st.integers(1, 100_000), min_size=1, max_size=5),
)
@settings(max_examples=40, deadline=None)
def test_any_change_comes_back(words: int, changed: list[int], cuts: list[int]) -> None:
    """Far apart, beside each other, none at all; read in pieces of any even length."""
    before = np.arange(words, dtype="<u2")
    after = before.copy()
    for position in changed:
        if position < words:
            after[position] ^= 0x5555
    body = patch_of(memoryview(before.tobytes()), memoryview(after.tobytes()))
    if 4 * len({position for position in changed if position < words}) + 32 < words // 2:
        assert body is not None
    if body is None:
        return
    tensors = [("only", torch.from_numpy(after.astype(np.int32)).to(torch.int16))]
    manifest = WeightsManifest.of(tensors)
    base = bytearray(manifest.bytes_flat)
    base[: before.nbytes] = before.tobytes()
    patched, done, read = Patched(memoryview(base), [body], manifest), 0, bytearray(after.nbytes)
    while done < len(read):
        piece = memoryview(read)[done : done + 2 * cuts[done % len(cuts)]]
        patched.readinto(manifest.tensors[0], done, piece)
        done += len(piece)
    assert bytes(read) == after.tobytes()


def test_what_differs_everywhere_is_no_patch() -> None:
    """A quarter of the bytes is the most that is worth it; other lengths have none."""
    zeros, ones = (memoryview(np.full(1000, value, "<u2").tobytes()) for value in (0, 1))
    assert patch_of(zeros, ones) is None
    assert patch_of(zeros, zeros[:-2]) is None
    assert patch_of(zeros, zeros) == bytes(8)


@pytest.mark.parametrize("body", [b"", bytes(7), (2).to_bytes(8, "little") + bytes(4), (1 << 60).to_bytes(8, "little")])
def test_what_is_no_patch_is_refused(body: bytes) -> None:
    with pytest.raises(TransferFailed):
        Patched(memoryview(bytes(64)), [body], WeightsManifest.of([("a", torch.zeros(4))]))


def version(number: int, share: float = 0.02) -> Tensors:
    """bf16 and an odd number of bytes; each version changes a share of the one before."""
    dice = np.random.default_rng(0)
    flat = dice.integers(0, 0x7000, 50_001, dtype=np.int16)  # no NaN among them
    for step in range(number):
        touched = np.random.default_rng(step + 1).integers(0, len(flat), int(share * len(flat)))
        flat[touched] ^= 1
    mask = torch.tensor([bool(number % 2)] * 9)
    return [("bf16", torch.from_numpy(flat.copy()).view(torch.bfloat16)), ("mask", mask), ("empty", torch.empty(0, 3))]


@pytest.fixture
def sent() -> list[Sent]:
    return []


@pytest.fixture
def server(sent: list[Sent]) -> TransferServer:
    return TransferServer(on_sent=sent.append)


def source(server: TransferServer, number: int, base: Base | None = None) -> FromTrainer:
    return FromTrainer(server.url, "run", number, worker_id="w", connect_timeout_s=5, base=base)


def test_who_has_the_version_before_gets_what_changed(server: TransferServer, sent: list[Sent], tmp_path: Path) -> None:
    """From the second time on: patches are made where somebody asked for one. The whole version else, also for another base."""
    copies = HostCopies(tmp_path / "copies")
    held, manifests = [], {number: WeightsManifest.of(version(number)) for number in range(5)}
    for number, manifest in manifests.items():
        server.stage("run", number, WeightsSnapshot.of(version(number)))
        base = Base(manifests[number - 1].digest, held[-1].path) if number else None
        if number == 4:
            base = Base(manifests[1].digest, held[1].path)
        held.append(take(copies, manifest, source(server, number, base)))
        assert same(held[-1], version(number))
        server.settle("run", number)
    until(lambda: len(sent) == 5, "all sends are told")
    whole, sizes = manifests[0].bytes_total, [each.bytes_total for each in sorted(sent, key=lambda each: each.version)]
    assert [size == whole for size in sizes] == [True, True, False, False, True]
    assert sizes[2] < 0.1 * whole
    server.close()


def test_a_damaged_base_gives_no_version(server: TransferServer, tmp_path: Path) -> None:
    """The result is hashed whole, so other bytes below the patch are found, and get no name."""
    copies = HostCopies(tmp_path / "copies")
    server._are_patches_wanted = True
    server.stage("run", 0, WeightsSnapshot.of(version(0)))
    server.stage("run", 1, WeightsSnapshot.of(version(1)))
    manifests = [WeightsManifest.of(version(number)) for number in range(2)]
    for content, error in (
        (random.Random(0).randbytes(manifests[0].bytes_flat), DigestMismatch),
        (b"short", TransferFailed),
    ):
        (tmp_path / "base").write_bytes(content)
        with pytest.raises(error):
            take(copies, manifests[1], source(server, 1, Base(manifests[0].digest, str(tmp_path / "base"))))
    assert not list(copies.directory.iterdir())
    assert same(take(copies, manifests[1], source(server, 1)), version(1))
    server.close()


def test_versions_that_differ_too_much_are_not_compared_each_time(
    server: TransferServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in sixteen is: rates of learning fall, and then patches are worth it."""
    compared, done = [], threading.Event()

    def counting(before: memoryview, after: memoryview) -> None:
        compared.append(len(before))
        done.set()

    monkeypatch.setattr("claw_r1.weights.transfer_server.patch_of", counting)
    server._are_patches_wanted = True
    for number in range(33):
        server.stage("run", number, WeightsSnapshot.of(version(number % 3, share=1)))
        staged = server.staged("run", number, WeightsManifest.of(version(number % 3, share=1)).digest)
        if staged.patch is not None:
            assert staged.patch.result(10) is None
    assert len(compared) == 2
    server.close()


@pytest.mark.process
def test_versions_that_come_faster_than_they_are_fetched_leave_nothing_behind(
    server: TransferServer, tmp_path: Path
) -> None:
    """Fifty, as fast as a trainer can stage them, to two hosts that take the newest whenever they are free. Both end with the last one;
    then no file, and no descriptor or thread more than before, is left."""
    hosts = [HostCopies(tmp_path / name) for name in ("one", "other")]
    versions = [version(number) for number in range(50)]
    newest, over = [0], threading.Event()

    def serve() -> None:
        for number, tensors in enumerate(versions):
            server.stage("run", number, WeightsSnapshot.of(tensors))
            server.settle("run", number)
            newest[0] = number
        over.set()

    def follow(copies: HostCopies) -> list[int]:
        held: HostCopy | None = None
        taken: list[int] = []
        while not (over.is_set() and taken and taken[-1] == newest[0]):
            number = newest[0]
            if taken and taken[-1] == number:
                time.sleep(0.001)
                continue
            manifest = WeightsManifest.of(versions[number])
            base = Base(WeightsManifest.of(versions[taken[-1]]).digest, held.path) if held is not None else None
            try:
                copy = take(copies, manifest, source(server, number, base))
            except WeightsError:  # it is gone already: the next look finds a newer one
                assert newest[0] > number
                continue
            assert same(copy, versions[number])
            if held is not None:
                held.close()
            held = copy
            taken.append(number)
        assert held is not None
        held.close()
        return taken

    server.stage("run", 0, WeightsSnapshot.of(versions[0]))
    before = descriptors(), {*threading.enumerate()}
    with ThreadPoolExecutor(3) as pool:
        serving, *following = pool.submit(serve), *(pool.submit(follow, copies) for copies in hosts)
        serving.result()
        taken = [each.result() for each in following]
    assert [each[-1] for each in taken] == [49, 49]
    assert all(each == sorted(set(each)) for each in taken)
    until(
        lambda: not any("process_request" in each.name for each in {*threading.enumerate()} - before[1]), "senders end"
    )
    until(lambda: descriptors() <= before[0] + 2, "descriptors are given back")  # two versions are held by the server
    assert [[*copies.directory.iterdir()] for copies in hosts] == [[], []]


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
