"""Carriers that are killed, or stand still, wherever they are: each worker has its version by another source, and the next one is carried again."""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
import torch

from claw_r1.rollout.fetch import Fetched, fetch
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.runtime import child
from claw_r1.schemas.events import WeightsPublished
from claw_r1.weights.carry.carrier_process import CARRIER
from claw_r1.weights.carry.carrying import Carried, Carrying
from claw_r1.weights.carry.from_carrier import Carriage
from claw_r1.weights.host_copies import tensors as tensors_of
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.transfer_server import TransferServer
from tests.patience import PATIENCE_S, until, until_async
from tests.rollout.test_sync import published
from tests.soak import in_soak

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

BUCKET = 1 << 18
FIRST, MIDDLE = f"at {BUCKET}", f"at {3 * BUCKET}"
STARTING = ("loaded", "joined")
"""The phases that a group goes through once."""
OnLine = Callable[["subprocess.Popen[bytes]", str], None]


class Tapped:
    """The process of a carrier, each of whose lines is seen before whoever started it hears it."""

    def __init__(self, process: "subprocess.Popen[bytes]", on_line: OnLine) -> None:
        self.stdin, self.pid, self.poll, self.kill, self.wait = (
            process.stdin,
            process.pid,
            process.poll,
            process.kill,
            process.wait,
        )
        reading, self._writing = os.pipe()
        self.stdout: IO[bytes] = os.fdopen(reading, "rb")
        self._process, self._on_line = process, on_line
        threading.Thread(target=self._pass_on, daemon=True).start()

    def _pass_on(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._on_line(self._process, line.decode().strip())
            os.write(self._writing, line)
        os.close(self._writing)


class Fleet:
    """A trainer and two workers of other hosts, whose carriers meet a signal at a phase."""

    def __init__(self, folder: Path) -> None:
        self.fault: tuple[str, str, int] | None = None
        """Whose carrier, at which of its lines, gets which signal."""
        self.carried: list[Carried] = []
        spawn, heard = self._spawn("trainer"), self.carried.append
        carrying = Carrying(("gloo",), spawn, bucket_bytes=BUCKET, join_s=300, on_carried=heard)
        self.server = TransferServer(carrying=carrying)
        self.carriages = {name: Carriage(("gloo",), self._spawn(name)) for name in ("a", "b")}
        self.hosts = {name: folder / name for name in ("a", "b", "c")}
        """The copies of each worker's host."""
        self.pids: list[int] = []
        self._folder, self._version = folder, 0

    def add(self, name: str, host: str) -> None:
        """Another worker, on this one's host."""
        self.hosts[name], self.carriages[name] = self.hosts[host], Carriage(("gloo",), self._spawn(name))

    def _spawn(self, name: str) -> Callable[[str], "subprocess.Popen[bytes]"]:
        def on_line(process: "subprocess.Popen[bytes]", line: str) -> None:
            if self.fault is not None and self.fault[:2] == (name, line):
                number, self.fault = self.fault[2], None
                os.kill(process.pid, number)
                assert number == signal.SIGSTOP or child.wait(
                    process, PATIENCE_S
                )  # so that it is dead for the next version

        def spawn(transport: str) -> "subprocess.Popen[bytes]":
            process = child.start_spoken_to(CARRIER, transport)
            self.pids.append(process.pid)
            return Tapped(process, on_line)  # type: ignore[return-value]  # as much of it as a carrier needs

        return spawn

    async def next_version(self, carry_timeout_s: float, late_s: float = 0.0) -> list[Fetched]:
        """All have it, whole, the last of them later; how."""
        self._version += 1
        tensors = {f"t{i}": torch.full((1 << 16,), float(self._version + i)) for i in range(5)}
        snapshot = WeightsSnapshot.of(tensors.items())
        self.server.stage("run", self._version, snapshot)
        event = published(None, self.server.url, self._version, snapshot.manifest)
        last = list(self.carriages)[-1]
        late = {name: late_s if name == last else 0.0 for name in self.carriages}
        fetched = await asyncio.gather(*[self._fetched(event, name, carry_timeout_s, late[name]) for name in late])
        for one in fetched:
            loaded = dict(tensors_of(one.copy.path, one.manifest))
            assert all(loaded[name].equal(tensor) for name, tensor in tensors.items())
        return fetched

    async def _fetched(self, event: WeightsPublished, name: str, carry_timeout_s: float, late_s: float) -> Fetched:
        await asyncio.sleep(late_s)
        settings = RolloutSettings(
            model=self._folder,
            model_id="m",
            worker_id=name,
            copies_dir=self.hosts[name],
            carry_timeout_s=carry_timeout_s,
            offer_timeout_s=60,
            fetch_timeout_s=120,
        )
        return await fetch(settings, event, None, self.carriages[name])

    def close(self) -> None:
        self.server.close()
        for carriage in self.carriages.values():
            carriage.close()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()
    until(lambda: not [pid for pid in fleet.pids if Path(f"/proc/{pid}").exists()])


@pytest.mark.parametrize(
    ("who", "number", "phase"),
    [
        ("trainer", signal.SIGKILL, MIDDLE),
        ("a", signal.SIGSTOP, FIRST),
        *(
            in_soak(who, number, phase)
            for who in ("trainer", "a")
            for number in (signal.SIGKILL, signal.SIGSTOP)
            for phase in (*STARTING, FIRST, MIDDLE, "done")
        ),
    ],
)
async def test_every_worker_has_its_version_and_the_next_is_carried_again(
    fleet: Fleet, who: str, number: int, phase: str, tmp_path: Path
) -> None:
    """Whatever becomes of one carrier, every copy has the bytes of its digest; no process, no file is left of what was begun."""
    if phase not in STARTING:
        assert [one.source for one in await fleet.next_version(300)] == ["gloo"] * 2
    fleet.fault = who, phase, number
    met = await fleet.next_version(300 if number == signal.SIGKILL else 60 if phase in STARTING else 3)
    assert fleet.fault is None
    if number == signal.SIGSTOP and not any(one.failed for one in met):
        await fleet.next_version(3)  # all was there when the signal came: this one meets it
    assert [(one.source, one.failed) for one in await fleet.next_version(300)] == [("gloo", ())] * 2, fleet.carried
    assert list(tmp_path.rglob("*.unfinished")) == []  # noqa: ASYNC240  # nothing else runs here


async def test_a_worker_that_fails_twice_asks_for_a_while_by_http_alone(fleet: Fleet) -> None:
    """Carriers that cannot work cost no version more than its first try."""
    fleet.server.carrying = None
    ways = [[(one.source, len(one.failed)) for one in await fleet.next_version(300)] for _ in range(3)]
    assert ways == [[("trainer", 1)] * 2, [("trainer", 1)] * 2, [("trainer", 0)] * 2]
    assert fleet.pids == []


async def test_one_who_joins_and_one_who_leaves_make_a_new_group(fleet: Fleet) -> None:
    """Who comes later is carried to by itself, and is waited for from the next version on; who no longer asks is not."""
    late = fleet.carriages.pop("b")
    await fleet.next_version(300)
    fleet.carriages["b"] = late
    await fleet.next_version(300)
    await fleet.next_version(300)
    group = late.group
    assert group == fleet.carriages["a"].group != ""
    await fleet.next_version(300)
    assert group == fleet.carriages["a"].group == late.group
    fleet.carriages.pop("b").close()
    await fleet.next_version(300)
    assert fleet.carriages["a"].group not in {"", group}
    assert all(one.error is None for one in fleet.carried)


async def test_the_workers_of_a_host_have_one_carrier(fleet: Fleet) -> None:
    """One of them asks, the others take its copy; so the group stands, whoever comes first. When that one ends, another has a carrier."""
    fleet.add("a2", host="a")
    for _ in range(3):
        await fleet.next_version(300)
    assert len(fleet.pids) == 3
    assert all(one.error is None and len(one.workers) == 2 for one in fleet.carried)
    (owner,) = (name for name in ("a", "a2") if fleet.carriages[name].carrier)
    fleet.carriages.pop(owner).close()
    await fleet.next_version(300)
    assert len(fleet.pids) == 6
    await until_async(lambda: len(fleet.carried) == 4, "what was carried is told once its workers have it")
    assert [sorted(one.workers)[1:] for one in fleet.carried] == [["b"]] * 4


async def test_one_who_is_always_late_ends_nobodys_group(fleet: Fleet) -> None:
    """It is carried to by itself, and its group stands beside that of the others."""
    fleet.add("c", host="c")
    for _ in range(3):
        await fleet.next_version(300, late_s=2)
    assert len(fleet.pids) == 5
    assert all(one.error is None for one in fleet.carried)
    assert [one.workers for one in fleet.carried] == [("a", "b"), ("c",)] * 3
