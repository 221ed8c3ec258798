"""Groups of workers whose versions are carried: who is in one, from version to version. Whoever dies there: integration/test_carried_fleet.py."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from claw_r1.rollout.fetch import Fetched, fetch
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.runtime.processes import child
from claw_r1.schemas.events import WeightsPublished
from claw_r1.weights.carry.carrier_handle import CARRIER
from claw_r1.weights.carry.carrying import Carried, Carrying
from claw_r1.weights.carry.from_carrier import Carriage
from claw_r1.weights.host_copies import tensors as tensors_of
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.transfer_server import TransferServer
from tests.patience import until, until_async
from tests.rollout.test_sync import published

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

BUCKET = 1 << 18


class Fleet:
    """A trainer and two workers of other hosts."""

    def __init__(self, folder: Path) -> None:
        self.carried: list[Carried] = []
        self.before_own: Callable[[], object] = lambda: None
        """Called before the trainer's carrier starts."""
        heard = self.carried.append
        carrying = Carrying(("gloo",), self._spawn_own, bucket_bytes=BUCKET, join_s=300, on_carried=heard)
        self.server = TransferServer(carrying=carrying)
        self.carriages = {name: Carriage(("gloo",), self._spawn) for name in ("a", "b")}
        self.hosts = {name: folder / name for name in ("a", "b", "c")}
        """The copies of each worker's host."""
        self.pids: list[int] = []
        self._folder, self._version = folder, 0

    def add(self, name: str, host: str) -> None:
        """Another worker, on this one's host."""
        self.hosts[name], self.carriages[name] = self.hosts[host], Carriage(("gloo",), self._spawn)

    def _spawn(self, transport: str) -> "subprocess.Popen[bytes]":
        process = child.start_spoken_to(CARRIER, transport)
        self.pids.append(process.pid)
        return process

    def _spawn_own(self, transport: str) -> "subprocess.Popen[bytes]":
        self.before_own()
        return self._spawn(transport)

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
        return await fetch(settings, event, (), self.carriages[name])

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


async def test_a_worker_that_fails_twice_asks_for_a_while_by_http_alone(fleet: Fleet) -> None:
    """Carriers that cannot work cost no version more than its first try."""
    fleet.server.carrying = None
    ways = [[(one.source, len(one.failed)) for one in await fleet.next_version(300)] for _ in range(3)]
    assert ways == [[("trainer", 1)] * 2, [("trainer", 1)] * 2, [("trainer", 0)] * 2]
    assert fleet.pids == []


async def test_the_carriers_of_a_group_load_at_the_same_time(fleet: Fleet) -> None:
    """Those of the workers have begun before the trainer's is there to be joined."""
    fleet.before_own = lambda: until(lambda: len(fleet.pids) == 2, "both carriers of workers")
    assert [one.source for one in await fleet.next_version(300)] == ["gloo"] * 2
    assert len(fleet.pids) == 3


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
    await until_async(lambda: len(fleet.carried) == 6, "what was carried is told once its workers have it")
    assert all(one.error is None for one in fleet.carried)
    assert [one.workers for one in fleet.carried] == [("a", "b"), ("c",)] * 3
