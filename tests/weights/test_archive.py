"""Versions in a directory: whoever reads it, from wherever, has the version or an error, and never another one under its name."""

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.runtime.processes.child import start
from claw_r1.weights.archive import PATCH, UNFINISHED, WHOLE, FromArchive, VersionArchive
from claw_r1.weights.errors import DeadlineExceeded, DigestMismatch, ManifestMismatch, TransferFailed
from claw_r1.weights.host_copies import HostCopies
from claw_r1.weights.manifest import WeightsManifest
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.sources import Base
from tests.weights.tensors import same, take
from tests.weights.test_patch import version

MANIFESTS = [WeightsManifest.of(version(number)) for number in range(12)]


def archived(folder: Path, numbers: range, whole_every: int = 5) -> VersionArchive:
    archive = VersionArchive(folder, whole_every)
    for number in numbers:
        archive.add(WeightsSnapshot.of(version(number)))
    return archive


def kinds(folder: Path) -> dict[str, list[int]]:
    """The numbers of the versions that are there, by how."""
    number_of = {manifest.digest: number for number, manifest in enumerate(MANIFESTS)}
    return {
        kind: sorted(number_of[path.name.removesuffix(kind)] for path in folder.glob(f"*{kind}"))
        for kind in (WHOLE, PATCH)
    }


@given(
    whole_every=st.integers(1, 6),
    restarts=st.sets(st.integers(1, 11)),
    wanted=st.integers(0, 11),
    held=st.none() | st.integers(0, 11),
)
def test_whatever_is_in_the_archive_can_be_had_from_any_base(
    tmp_path_factory: pytest.TempPathFactory, whole_every: int, restarts: set[int], wanted: int, held: int | None
) -> None:
    """By trainers that were started again, the last one's version with it; a base that no chain meets is of no use, and no harm."""
    folder = tmp_path_factory.mktemp("archive")
    begins = [0, *sorted(restarts), 12]
    for begin, end in pairwise(begins):
        archived(folder / "run", range(max(0, begin - 1), end), whole_every)
    there = kinds(folder / "run")
    assert 11 in there[WHOLE] + there[PATCH]
    assert len(there[WHOLE]) <= 2
    base = None
    if held is not None:
        flat = folder / "base"
        flat.write_bytes(WeightsSnapshot.of(version(held)).flat())
        base = Base(MANIFESTS[held].digest, str(flat))
    copies = HostCopies(folder / "copies")
    if wanted in there[WHOLE] + there[PATCH]:
        assert same(take(copies, MANIFESTS[wanted], FromArchive(folder / "run", base)), version(wanted))
    else:
        with pytest.raises(DeadlineExceeded):
            take(copies, MANIFESTS[wanted], FromArchive(folder / "run", base), seconds=0.01)


def test_a_chain_is_as_long_as_it_is_told_and_old_ones_go(tmp_path: Path) -> None:
    """Two whole versions and what follows the older of them; what a kill left goes, too."""
    (tmp_path / ("b3:0" + WHOLE + UNFINISHED)).write_bytes(b"killed")
    archived(tmp_path, range(12), whole_every=5)
    assert kinds(tmp_path) == {WHOLE: [5, 10], PATCH: [6, 7, 8, 9, 11]}
    assert not list(tmp_path.glob(f"*{UNFINISHED}"))
    whole = (tmp_path / (MANIFESTS[10].digest + WHOLE)).stat().st_size
    assert (tmp_path / (MANIFESTS[11].digest + PATCH)).stat().st_size < 0.1 * whole


def test_a_clock_that_is_set_back_deletes_nothing_new(tmp_path: Path) -> None:
    """Each version can be had after it was written; what is old goes as ever."""
    archive, copies = archived(tmp_path / "run", range(5), whole_every=3), HostCopies(tmp_path / "copies")
    ahead_s = time.time() + 3600
    for number, path in enumerate(sorted((tmp_path / "run").iterdir(), key=lambda path: path.stat().st_mtime_ns)):
        os.utime(path, (ahead_s, ahead_s + number))
    for number in range(5, 12):
        archive.add(WeightsSnapshot.of(version(number)))
        assert same(take(copies, MANIFESTS[number], FromArchive(tmp_path / "run"), seconds=5), version(number))
    assert kinds(tmp_path / "run") == {WHOLE: [6, 9], PATCH: [7, 8, 10, 11]}


def test_a_skipped_step_is_no_new_version(tmp_path: Path) -> None:
    archive = archived(tmp_path, range(2))
    archive.add(WeightsSnapshot.of(version(1)))
    archive.add(WeightsSnapshot.of(version(2)))
    assert kinds(tmp_path) == {WHOLE: [0], PATCH: [1, 2]}


def test_versions_that_differ_too_much_are_whole(tmp_path: Path) -> None:
    archive = VersionArchive(tmp_path, 5)
    for number in range(3):
        archive.add(WeightsSnapshot.of(version(number, share=1)))
    assert len(list(tmp_path.glob(f"*{WHOLE}"))) == 2
    assert not list(tmp_path.glob(f"*{PATCH}"))


def test_after_a_disk_that_was_full_the_next_version_is_whole(tmp_path: Path) -> None:
    """It patches nothing that is not there."""
    archive = archived(tmp_path / "run", range(2))
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").write_text("no directory")
    with pytest.raises(OSError, match="exists"):
        archive.add(WeightsSnapshot.of(version(2)))
    (tmp_path / "run").unlink()
    archive.add(WeightsSnapshot.of(version(3)))
    archive.add(WeightsSnapshot.of(version(4)))
    assert kinds(tmp_path / "run") == {WHOLE: [3], PATCH: [4]}


def test_a_version_that_is_on_its_way_is_waited_for(tmp_path: Path) -> None:
    """A mirror is behind the event: the worker's own deadline ends the wait."""
    archive = archived(tmp_path / "run", range(1))
    later = threading.Timer(0.2, archive.add, [WeightsSnapshot.of(version(1))])
    later.start()
    assert same(take(HostCopies(tmp_path / "copies"), MANIFESTS[1], FromArchive(tmp_path / "run")), version(1))
    later.join()


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        (MANIFESTS[2].digest + PATCH, b"no header", ManifestMismatch),
        (MANIFESTS[2].digest + PATCH, b"../../etc/passwd\n" + bytes(8), ManifestMismatch),
        (MANIFESTS[2].digest + PATCH, f"{MANIFESTS[2].digest}\n".encode() + bytes(8), TransferFailed),
        (MANIFESTS[2].digest + PATCH, f"{MANIFESTS[7].digest}\n".encode() + bytes(8), TransferFailed),
        (MANIFESTS[2].digest + PATCH, f"{MANIFESTS[1].digest}\n".encode() + bytes(9), TransferFailed),
        (MANIFESTS[2].digest + PATCH, f"{MANIFESTS[1].digest}\n".encode() + bytes(8), DigestMismatch),
        (MANIFESTS[0].digest + WHOLE, b"short", TransferFailed),
        (MANIFESTS[0].digest + WHOLE, bytes(MANIFESTS[0].bytes_flat), DigestMismatch),
    ],
)
def test_what_is_damaged_gives_no_version(tmp_path: Path, name: str, content: bytes, error: type[Exception]) -> None:
    """A header that is none, one that leads elsewhere, in a circle or to what is not there; other bytes in a patch or below it."""
    archived(tmp_path / "run", range(3))
    (tmp_path / "run" / name).write_bytes(content)
    copies = HostCopies(tmp_path / "copies")
    with pytest.raises(error):
        take(copies, MANIFESTS[2], FromArchive(tmp_path / "run"))
    assert not list(copies.directory.iterdir())


def test_no_directory_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(ManifestMismatch, match="no archive"):
        take(HostCopies(tmp_path / "copies"), MANIFESTS[0], FromArchive(tmp_path / "run"))


WRITING = """
import sys
from pathlib import Path
from claw_r1.runtime.processes.child import start
from claw_r1.weights.archive import VersionArchive
from claw_r1.weights.snapshot import WeightsSnapshot
from tests.weights.test_patch import version

versions = [WeightsSnapshot.of(version(number)) for number in range(12)]
while True:
    archive = VersionArchive(Path(sys.argv[1]), 4)
    for snapshot in versions:
        archive.add(snapshot)
        print(flush=True)
    for path in Path(sys.argv[1]).iterdir():
        path.unlink()
"""


@pytest.mark.process
def test_wherever_a_trainer_is_killed_each_name_gives_its_version(tmp_path: Path) -> None:
    """Again and again, at any moment of writing and forgetting."""
    dice, numbers = random.Random(3), {manifest.digest: number for number, manifest in enumerate(MANIFESTS)}
    found = 0
    for attempt in range(2):
        writing = start([sys.executable, "-c", WRITING, str(tmp_path / "run")], stdout=subprocess.PIPE)
        assert writing.stdout is not None
        for _ in range(20):
            assert writing.stdout.readline()
        time.sleep(dice.random() / 50)
        writing.kill()
        writing.wait()
        copies = HostCopies(tmp_path / f"copies{attempt}")
        for path in (tmp_path / "run").glob("b3:*[eh]"):
            number = numbers[path.stem]
            with suppress(TransferFailed):  # of the chain that was being forgotten, or of one without its beginning
                assert same(take(copies, MANIFESTS[number], FromArchive(tmp_path / "run")), version(number))
                found += 1
    assert found
