"""The spool: what it took survives, reaches the log, in an order that completions can rely on, within its limits."""

import asyncio
import contextlib
import errno
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_r1.eventlog.errors import NotAcknowledged, RecordTooLarge, SpoolFull
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing, Position
from claw_r1.eventlog.settings import LogSettings
from claw_r1.eventlog.spool.drain import Drainer, waves
from claw_r1.eventlog.spool.frames import META_BEGINS, Spooled, frame, read_frames
from claw_r1.eventlog.spool.segment import OpenSegment
from claw_r1.eventlog.spool.spool import REFUSED_FILE, Spool
from claw_r1.schemas.codec import decode
from claw_r1.schemas.topics import CALLS, REWARDS
from tests.eventlog.samples import item, names
from tests.patience import PATIENCE_S, until, until_async

MIB = 1 << 20


@contextlib.contextmanager
def spool(root: Path, bytes_max: int = 64 * MIB, segment_bytes: int = MIB) -> Iterator[Spool]:
    running = Spool(root, "test", bytes_max=bytes_max, segment_bytes=segment_bytes)
    try:
        yield running
    finally:
        running.close()


@contextlib.contextmanager
def draining(source: Spool, produce: Callable[[Outgoing], Future[Position]]) -> Iterator[Drainer]:
    drainer = Drainer(source, produce)
    drainer.start()
    try:
        yield drainer
    finally:
        drainer.stop(10)


def stored(log: MemoryLog) -> list[str]:
    return names(list(log.reader([CALLS]).read_to_end()))


def content(root: Path) -> list[str]:
    """What lies in all segments below a root."""
    found = [spooled for path in sorted(root.glob("*/*.spool")) for spooled in read_frames(path)]
    return [name_of(spooled) for spooled in found]


def directories(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()]


def name_of(spooled: Spooled) -> str:
    return decode(spooled.item.value).trajectory_id  # type: ignore[union-attr]  # the kind that this test makes has it


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    """Topic, key, value, headers, partition and order of a record survive the disk."""
    sent = [item("a"), item("b", topic=REWARDS, partition=1), Outgoing.tombstone(CALLS, b"\xff\x00")]
    path = tmp_path / "x.spool"
    path.write_bytes(b"".join(frame(one, behind=one is sent[1]) for one in sent))
    back = list(read_frames(path))
    assert [(one.item.topic, one.item.key, one.item.value, one.item.partition) for one in back] == [
        (one.topic, one.key, one.value, one.partition) for one in sent
    ]
    assert [list(one.item.headers) for one in back] == [list(one.headers) for one in sent]
    assert [spooled.behind for spooled in back] == [False, True, False]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2000), st.binary(max_size=64))
def test_a_torn_tail_is_cut(tmp_path_factory: pytest.TempPathFactory, cut: int, rubbish: bytes) -> None:
    """Wherever a write was cut short, whatever lies behind it: exactly the whole records before it are read."""
    frames = [frame(item(name), behind=False) for name in "abc"]
    whole = b"".join(frames)
    kept = whole[: min(cut, len(whole) - 1)]
    path = tmp_path_factory.mktemp("torn") / "x.spool"
    written = kept + (b"" if rubbish.strip(b"\0") else rubbish)
    path.write_bytes(written)
    pairs = zip(written, whole, strict=False)
    intact = sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    )  # zeros may be what was cut off
    ends = [sum(map(len, frames[: count + 1])) for count in range(3)]
    read = [name_of(spooled) for spooled in read_frames(path)]
    assert read == list("abc")[: sum(end <= intact for end in ends)]


@pytest.mark.parametrize("name", ["b", f"looks like one: {META_BEGINS.decode()}"])
def test_a_damaged_record_costs_no_other(tmp_path: Path, name: str) -> None:
    """A flipped bit loses the record that it is in, and no record behind it, whether in its lengths, its key or its value."""
    frames = [frame(item(one), behind=False) for one in ("a", name, "c")]
    path = tmp_path / "x.spool"
    for at in range(len(frames[0]), len(frames[0]) + len(frames[1])):
        for bit in (1, 128):
            damaged = bytearray(b"".join(frames))
            damaged[at] ^= bit
            path.write_bytes(damaged)
            assert [name_of(spooled) for spooled in read_frames(path)] == ["a", "c"], f"byte {at - len(frames[0])}"


def test_damaged_records_in_a_row_cost_no_other(tmp_path: Path) -> None:
    """As a sector that is lost: what comes behind it is found by its own checksum."""
    frames = [frame(item(name), behind=False) for name in "abcd"]
    path = tmp_path / "x.spool"
    path.write_bytes(frames[0] + bytes(len(frames[1] + frames[2])) + frames[3])
    assert [name_of(spooled) for spooled in read_frames(path)] == ["a", "d"]


async def test_concurrent_appends_share_an_fsync(tmp_path: Path) -> None:
    """Hundreds of appends at once cost a handful of fsyncs, and each is on the disk when it returns."""
    with spool(tmp_path) as running:
        await asyncio.gather(*(running.append(item(f"t{number}")) for number in range(300)))
        assert sorted(content(tmp_path)) == sorted(f"t{number}" for number in range(300))
        assert running.stats().records == 300
        assert running.stats().fsyncs < 60


class HangingDisk(Spool):
    """A spool whose next write takes until `goes_on` is set."""

    writes, goes_on = threading.Event(), threading.Event()

    def _commit(self, batch: Sequence[Any]) -> None:
        self.writes.set()
        self.goes_on.wait()
        super()._commit(batch)


async def test_a_disk_that_hangs_is_seen(tmp_path: Path) -> None:
    """What a spool tells of itself waits for no disk."""
    running = HangingDisk(tmp_path, "test", bytes_max=MIB)
    try:
        appended = asyncio.ensure_future(running.append(item("a")))
        await until_async(running.writes.is_set)
        seen = asyncio.get_running_loop().run_in_executor(None, running.stats)
        assert (await asyncio.wait_for(seen, PATIENCE_S)).spooled == 0
    finally:
        running.goes_on.set()
        running.close()
    await appended
    assert running.stats().spooled == 1


async def test_drains_into_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    """Everything spooled is in the log, segments and directory are gone, nothing is held any more."""
    log = MemoryLog(LogSettings(partitions=2))
    with spool(tmp_path, segment_bytes=2000) as running:
        await asyncio.gather(*(running.append(item(f"t{number}")) for number in range(50)))
        assert running.holds(b"g")
        with draining(running, log.producer().produce):
            until(lambda: running.empty)
            until(lambda: not list(tmp_path.glob("*/*.spool")))
        assert sorted(stored(log)) == sorted(f"t{number}" for number in range(50))
        assert (running.stats().records, running.stats().bytes, running.stats().drained) == (0, 0, 50)
    assert not directories(tmp_path)


async def test_waits_for_a_log_that_is_away(tmp_path: Path) -> None:
    """While the log refuses, the records stay and one at a time is tried; when it is back, all go."""
    log = MemoryLog(LogSettings(partitions=2))
    log.refusing = True
    with spool(tmp_path) as running, draining(running, log.producer().produce) as drainer:
        drainer.log_is_away()
        await asyncio.gather(*(running.append(item(f"t{number}")) for number in range(20)))
        until(lambda: drainer.away)
        assert running.stats().oldest_age_s >= 0
        assert not stored(log)
        log.refusing = False
        until(lambda: running.empty)
        assert not drainer.away
    assert len(stored(log)) == 20


def flip_last_bit(root: Path) -> None:
    (segment,) = root.glob("*/*.spool")
    flipped = bytearray(segment.read_bytes())
    flipped[-1] ^= 1
    segment.write_bytes(flipped)


async def test_a_record_that_cannot_be_read_holds_nobody(tmp_path: Path) -> None:
    """A bit that flips on the disk costs its record, and its group is free when the rest is drained."""
    log = MemoryLog(LogSettings(partitions=1))
    with spool(tmp_path) as running:
        await asyncio.gather(*(running.append(item(name)) for name in "abc"))
        flip_last_bit(tmp_path)
        with draining(running, log.producer().produce):
            until(lambda: running.empty)
        assert not running.holds(b"g")
    assert len(stored(log)) == 2


class Unsteady:
    """A log that loses some answers: every third record is refused at first, the others go through at once."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log.producer()
        self._count = 0

    def produce(self, one: Outgoing) -> Future[Position]:
        self._count += 1
        if self._count % 3 == 0:
            lost: Future[Position] = Future()
            lost.set_exception(NotAcknowledged("lost"))
            return lost
        return self._log.produce(one)


async def test_what_stands_behind_comes_behind(tmp_path: Path) -> None:
    """A record spooled as `behind` enters the log after every earlier one of its key, whatever was lost on the way."""
    log = MemoryLog(LogSettings(partitions=1))
    with spool(tmp_path) as running:
        for group in range(6):
            calls = [item(f"g{group}-call{number}", key=f"g{group}") for number in range(7)]
            await asyncio.gather(*(running.append(call) for call in calls))
            await running.append(item(f"g{group}-end", key=f"g{group}"), behind=True)
        with draining(running, Unsteady(log).produce):
            until(lambda: running.empty)
    order = stored(log)
    for group in range(6):
        end = order.index(f"g{group}-end")
        assert all(order.index(f"g{group}-call{number}") < end for number in range(7))


def test_waves_break_where_order_matters() -> None:
    """Only a `behind` record whose key is already on its way begins a new wave."""
    marks = [("a", False), ("a", False), ("b", True), ("a", True), ("a", True), ("b", False)]
    spooled = [Spooled(item(f"{number}", key=key), behind, 0.0) for number, (key, behind) in enumerate(marks)]
    shapes = [[name_of(one) for one in wave] for wave in waves(spooled, lambda: 100)]
    assert shapes == [["0", "1", "2"], ["3"], ["4", "5"]]


async def test_the_limit_is_kept(tmp_path: Path) -> None:
    """At its size limit the spool says SpoolFull, keeps what it took, and takes again when there is room."""
    log = MemoryLog(LogSettings(partitions=1))
    size = len(frame(item("a"), behind=False))
    with spool(tmp_path, bytes_max=2 * size + size // 2) as running:
        await running.append(item("a"))
        await running.append(item("b"))
        with pytest.raises(SpoolFull):
            await running.append(item("c"))
        with draining(running, log.producer().produce):
            until(lambda: running.empty and not running.stats().bytes)
        await running.append(item("d"))
    assert sorted(stored(log)) == ["a", "b"]


async def test_what_the_log_would_refuse_is_refused_at_once(tmp_path: Path) -> None:
    """A record over the log's limit does not enter the spool, where it could only get stuck."""
    big = Outgoing(topic=CALLS, key=b"g", value=bytes(9 * MIB))
    with spool(tmp_path) as running:
        with pytest.raises(RecordTooLarge):
            await running.append(big)
        assert running.empty


async def test_a_poison_record_is_set_aside(tmp_path: Path) -> None:
    """A record that the log calls too large after all is kept for a person and blocks nobody."""
    log = MemoryLog(LogSettings(partitions=1))

    def picky(one: Outgoing) -> Future[Position]:
        if b"poison" in (one.value or b""):
            refused: Future[Position] = Future()
            refused.set_exception(RecordTooLarge("no"))
            return refused
        return log.producer().produce(one)

    with spool(tmp_path) as running, draining(running, picky):
        await asyncio.gather(*(running.append(item(name)) for name in ("a", "poison", "b")))
        until(lambda: running.empty)
        assert running.stats().refused == 1
    assert sorted(stored(log)) == ["a", "b"]
    assert [name_of(one) for one in read_frames(tmp_path / REFUSED_FILE)] == ["poison"]


CHILD = """
import resource, sys
import structlog
from pathlib import Path
from claw_r1.eventlog.errors import SpoolFull
from claw_r1.eventlog.spool.spool import Spool
from tests.eventlog.samples import item
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
limit = int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
spool = Spool(Path(sys.argv[1]), "child", bytes_max=1 << 30)
number = 0
while True:
    try:
        spool.submit(item(f"t{number}")).result()
    except SpoolFull:
        print("full", spool.stats().records, spool.writable(), flush=True)
        sys.stdin.read()
        break
    print(f"t{number}", flush=True)
    number += 1
"""


@contextlib.contextmanager
def child(root: Path, file_bytes_max: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A process that spools until it is killed, or until its disk (here: its largest file) is full."""
    argv = [sys.executable, "-c", CHILD, str(root), str(file_bytes_max)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=10)


def test_a_killed_process_leaves_its_spool_to_the_next(tmp_path: Path) -> None:
    """kill -9 in the middle of appending: everything that was said to be spooled reaches the log through another."""
    with child(tmp_path) as process:
        assert process.stdout is not None
        said = [process.stdout.readline().strip() for _ in range(50)]
        with spool(tmp_path) as neighbour:
            assert neighbour.empty, "the spool of a living process is not taken"
        os.kill(process.pid, signal.SIGKILL)
        said += [line.strip() for line in process.stdout if line.endswith("\n")]
    segment = next(tmp_path.glob("child-*/*.spool"))
    with segment.open("ab") as torn:
        torn.write(frame(item("torn"), behind=False)[:-5])
    log = MemoryLog(LogSettings(partitions=1))
    with spool(tmp_path) as heir:
        assert heir.holds(b"g")
        with draining(heir, log.producer().produce):
            until(lambda: heir.empty)
    assert set(said) <= set(stored(log))
    assert "torn" not in stored(log)
    assert not directories(tmp_path)


def test_a_disk_that_is_full_is_said_and_loses_nothing(tmp_path: Path) -> None:
    """When the disk refuses, SpoolFull is raised, a part that was written is cut, and what was taken stays whole."""
    with child(tmp_path, file_bytes_max=20_000) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line.strip())
            if line.startswith("full"):
                break
    taken = [name for name in said if name.startswith("t")]
    assert said[-1].startswith(f"full {len(taken)} ")
    assert len(taken) > 10
    assert content(tmp_path) == taken


def test_a_segment_that_the_disk_does_not_remove_is_left(tmp_path: Path) -> None:
    """A disk that fails refuses one thing after the other: whoever wrote there hears of the first, which says why."""
    segment = OpenSegment(tmp_path / "x.spool")
    segment.path.unlink()
    segment.path.mkdir()  # what no file's removal removes
    segment.close()
    assert segment.path.is_dir()


class FailingDisk(Spool):
    """A spool whose disk answers otherwise than a full one, until it is well."""

    is_well = False

    def _writable_segment(self) -> OpenSegment:
        if not self.is_well:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return super()._writable_segment()


def test_whatever_a_disk_answers_its_spool_lives_on(tmp_path: Path) -> None:
    """Who appends hears that nothing was taken; when the disk is well again, so is the spool."""
    running = FailingDisk(tmp_path, "test", bytes_max=MIB)
    try:
        for name in "ab":
            with pytest.raises(SpoolFull, match="Read-only"):
                running.submit(item(name)).result(PATIENCE_S)
        running.is_well = True
        running.submit(item("c")).result(PATIENCE_S)
    finally:
        running.close()
    assert content(tmp_path) == ["c"]


def test_heirs_share_orphans(tmp_path: Path) -> None:
    """Of processes that start at once, each orphan is adopted by exactly one."""
    for name in "abc":
        orphan = Spool(tmp_path, name, bytes_max=MIB)
        orphan.submit(item(name)).result()
        orphan.close()
    heirs: list[Spool] = []
    threads = [threading.Thread(target=lambda: heirs.append(Spool(tmp_path, "heir", bytes_max=MIB))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(heir.stats().records for heir in heirs) == 3
    for heir in heirs:
        heir.close()
