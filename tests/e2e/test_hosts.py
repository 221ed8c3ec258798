"""The loop over ten hosts, each with a network of its own: one is cut off and comes back, others die for good."""

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from claw_r1.claw.demo.components import DemoComponents
from claw_r1.claw.demo.settings import DemoSettings
from claw_r1.claw.demo.verbs.tiny_model import ensure
from claw_r1.claw.local.kafka.node import new_cluster_id
from claw_r1.claw.local.stack import Stack
from claw_r1.claw.workers.places import WorkerPlace, worker_places
from claw_r1.runtime.processes.child import module_argv
from tests.caches import share_caches
from tests.e2e.hosts import Host, Switch
from tests.patience import until
from tests.soak import only_in_soak

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.vllm, pytest.mark.timeout(1200)]

BATCHES = 60
GATEWAY_PORT, OFFER_PORT, VLLM_PORT = 8000, 7000, 8100
KEY = "the agents' key"
CUT_S = 20.0
"""Longer than a gateway believes the last report of a worker (15 s)."""
PATIENCE_S = 300.0


@dataclass
class Site:
    """Every room on a host of its own. A room is started again on the same host, or on another one."""

    folder: Path
    switch: Switch
    components: DemoComponents
    env: Mapping[str, str]
    hosts: dict[str, Host] = field(default_factory=dict)

    def start(self, room: str, argv: tuple[str, ...], **env: str) -> None:
        self.hosts[room].start(argv, {**self.env, **env}, self.folder / f"{room}.log")

    def gateway(self) -> None:
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        flags = ("--host", self.hosts["gateway"].address, "--api-keys", f"agent:{digest}")
        spool = ("--spool-dir", str(self.folder / "spool"))
        component = self.components.gateway()
        self.start("gateway", (*component.argv, *flags, *spool), **component.env)

    def trainer(self, room: str, model: Path) -> None:
        component = self.components.trainer(model)
        where = {
            "CLAW_TRAINER_OFFER_HOST": "0.0.0.0",
            "CLAW_TRAINER_OFFER_PORT": str(OFFER_PORT),
            "CLAW_TRAINER_OFFER_ADVERTISE": self.hosts[room].address,
        }
        self.start(room, component.argv, **{**component.env, **where})

    def worker(self, place: WorkerPlace, model: Path) -> None:
        component = self.components.rollout(place, model)
        flags = ("--host", "0.0.0.0", "--port", str(VLLM_PORT))
        host = self.hosts[place.name]
        self.start(place.name, (*component.argv, *flags, "--advertise-host", host.address), **component.env)

    def agents(self) -> None:
        component = self.components.agents()
        url = f"http://{self.hosts['gateway'].address}:{GATEWAY_PORT}"
        given = component.argv.index("--gateway") + 1
        argv = (*component.argv[:given], url, *component.argv[given + 1 :], "--api-key", KEY)
        self.start("agents", argv, **component.env)

    def claw(self, *arguments: str) -> str:
        return self.hosts["operator"].run(module_argv("claw_r1.claw.cli", *arguments), self.env)

    @property
    def trained(self) -> int:
        """The batches that the run has trained, as the trainer wrote them down."""
        metrics = self.components.stack.run_dir / "trainer" / "metrics.jsonl"
        return len(metrics.read_text().splitlines()) if metrics.exists() else 0

    def goes_on(self, batches: int = 2) -> None:
        """So many more batches are trained."""
        before = self.trained
        until(lambda: self.trained >= before + batches, self.state(), patience_s=PATIENCE_S)

    def state(self) -> str:
        return f"batches go on; logs are in {self.folder}"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Three brokers with the topics in three copies; nothing else runs yet."""
    share_caches(tmp_path)
    switch = Switch()
    try:
        brokers = [switch.host(f"broker{number}") for number in (1, 2, 3)]
        servers = ",".join(f"{host.address}:9092" for host in brokers)
        stack = Stack(run_dir=tmp_path / "runs" / "over-hosts", bootstrap=servers)
        (stack.run_dir / "logs").mkdir(parents=True)
        settings = DemoSettings(batches_max=BATCHES, batches_min=BATCHES, workers=2)
        env = {
            **stack.environment(),
            "CLAW_HOME": str(tmp_path),
            "CLAW_WEIGHTS_SECRET": "a secret of all hosts",
            "CLAW_LOG_REPLICATION": "3",
        }
        rooms = ("gateway", "streams", "trainer", "trainer2", "rollout-1", "rollout-2", "agents", "operator")
        site = Site(tmp_path, switch, DemoComponents(settings, stack, GATEWAY_PORT), env)
        site.hosts = {room: switch.host(room) for room in rooms}
        cluster, addresses = new_cluster_id(), [host.address for host in brokers]
        for number, host in enumerate(brokers, 1):
            folder = tmp_path / f"broker{number}"
            argv = (sys.executable, "-m", "tests.e2e.hosted_broker", str(folder), cluster, str(number), *addresses)
            host.start(argv, env, tmp_path / f"broker{number}.log")
        for number in range(1, 4):
            until(lambda log=tmp_path / f"broker{number}.log": "broker_ready" in log.read_text())  # type: ignore[misc]  # a lambda with a default
        site.claw("topics", "create", "--replication", "3")
        yield site
    finally:
        switch.close()


@only_in_soak
def test_the_loop_goes_over_hosts_that_are_cut_off_and_die(site: Site) -> None:
    """A worker's host is cut off and comes back, one dies with a version half fetched, the trainer's dies and another takes its run over, the gateway's
    dies and comes back with its disk, a broker's dies. No acknowledged call is lost, nothing is trained twice."""
    model = ensure(site.components.models, 0)
    first, second = worker_places(2, None, 1)
    site.gateway()
    site.start("streams", site.components.stack.streams().argv)
    for place in (first, second):
        site.worker(place, model)
    site.trainer("trainer", model)
    site.agents()
    site.goes_on()

    site.hosts["rollout-1"].cut()
    end = time.monotonic() + CUT_S
    site.goes_on()
    time.sleep(max(0.0, end - time.monotonic()))
    site.hosts["rollout-1"].join()
    until(lambda: ready_workers(site) == 2, patience_s=PATIENCE_S)

    site.hosts["rollout-2"].slow()  # a version takes it a minute
    site.goes_on()
    site.hosts["rollout-2"].die()
    site.goes_on()

    site.hosts["trainer"].die()
    site.trainer("trainer2", model)
    site.goes_on()

    site.hosts["gateway"].die()
    site.gateway()
    site.goes_on()

    site.switch.hosts[0].die()
    site.goes_on()

    for room in ("agents", "trainer2"):
        site.hosts[room].die()
    until(lambda: promises_hold(site), f"every promise holds; logs are in {site.folder}", patience_s=PATIENCE_S)


def promises_hold(site: Site) -> bool:
    """Nothing that was replied is lost, nothing is trained twice, the pool is that of its facts, and there is one."""
    replied = str(site.components.stack.run_dir / "replied.txt")
    try:
        report = json.loads(site.claw("verify", "--replied", replied, "--json"))
    except AssertionError as found:
        print(found)
        return False
    counts = report["counts"]
    print(counts)
    return bool(counts["replied"] and counts["batches_trained"] and counts["pool_rows"])


def ready_workers(site: Site) -> int:
    """Workers that take calls by now."""
    workers = json.loads(site.claw("workers", "list", "--json"))["workers"]
    return sum(worker["state"] == "ready" and not worker["silent"] for worker in workers)
