"""An upgrade that nobody notices: streams and gateways of two versions side by
side under load, there and back again."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from claw_r1.claw.home import PROJECT
from claw_r1.datapool import FOLD_VERSION
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.avro_files import current_ids, schema_ids
from claw_r1.schemas.codec import schema_id_of
from claw_r1.schemas.topics import CALLS
from tests.e2e.service import LAG_S, Service, in_front
from tests.e2e.versions import earlier_version, fold_version, home_of, next_version
from tests.gateway.engine import ScriptedEngine
from tests.gateway.processes import Agents, Found, GatewayProcess, loaded
from tests.gateway.speaking import answer
from tests.patience import until
from tests.soak import only_in_soak
from tests.streams.pool import WorkerProcess, folded, records, whole

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

REPLICAS = 2


def pre_stop_s() -> float:
    """How long a gateway's pod waits before it is asked to stop, as the manifest
    says."""
    *_, gateway = (
        each
        for each in yaml.safe_load_all((PROJECT / "infra/kubernetes/base/gateway.yaml").read_text())
        if each["kind"] == "StatefulSet"
    )
    (container,) = gateway["spec"]["template"]["spec"]["containers"]
    return float(container["lifecycle"]["preStop"]["sleep"]["seconds"])


class Silence:
    """Measures the longest time in which nothing was folded."""

    def __init__(self, log: LogSettings) -> None:
        self.longest_s = 0.0
        self._log, self._enough = log, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        since, before = time.monotonic(), folded(self._log)
        while not self._enough.wait(0.1):
            now = folded(self._log)
            if now != before:
                since, before = time.monotonic(), now
            self.longest_s = max(self.longest_s, time.monotonic() - since)

    def __enter__(self) -> "Silence":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join(60)


class Deployment:
    """Two workers of the streams and two gateways behind a service, each of one version or the other.

    A version is what its processes have as PYTHONPATH; none is ours.
    """

    def __init__(self, log: LogSettings, folder: Path, upstream: str, version: dict[str, str]) -> None:
        self.service = Service()
        self._log, self._folder, self._upstream = log, folder, upstream
        self.streams: list[WorkerProcess] = []
        self.gateways: list[GatewayProcess] = []
        for number in range(REPLICAS):
            self.streams.append(self._worker(number, version))
            self.gateways.append(self._gateway(number, version))
        self.service.members = [each.port for each in self.gateways]

    def _worker(self, number: int, version: dict[str, str]) -> WorkerProcess:
        started = WorkerProcess(self._log, self._folder / f"streams-{number}-{time.monotonic_ns()}.log", **version)
        until(lambda: started.said("streams_assigned"))
        return started

    def _gateway(self, number: int, version: dict[str, str]) -> GatewayProcess:
        flags = "--upstream", self._upstream, "--instance", f"gateway-{number}"
        return GatewayProcess(self._log, self._folder, *flags, **version)

    def roll(self, version: dict[str, str], agents: Agents) -> None:
        """One process after another gives way to that version, readers of calls
        first; each time some calls go on."""
        for number, old in enumerate(self.streams):
            assert old.stop() == 0
            self.streams[number] = self._worker(number, version)
            _goes_on(agents)
        for number, gateway in enumerate(self.gateways):
            self._take_out(gateway)
            assert gateway.stop() == 0
            self.gateways[number] = self._gateway(number, version)
            self.service.members = [each.port for each in self.gateways]
            _goes_on(agents)

    def _leave(self, gateway: GatewayProcess) -> None:
        self.service.members = [each.port for each in self.gateways if each is not gateway]

    def _take_out(self, gateway: GatewayProcess) -> None:
        """The pod's end: it waits as its manifest says; meanwhile, or too
        late, the service hears of it."""
        threading.Timer(LAG_S, self._leave, [gateway]).start()
        time.sleep(pre_stop_s())

    def stop(self) -> None:
        for process in (*self.streams, *self.gateways):
            process.stop()


def _goes_on(agents: Agents) -> None:
    seen = len(agents.replied)
    until(lambda: len(agents.replied) > seen + 100)


@contextlib.contextmanager
def deployed(log: LogSettings, folder: Path, version: dict[str, str]) -> Iterator[Deployment]:
    """All of it in that version, before an engine that answers at once."""
    with ScriptedEngine(answer) as engine:
        deployment = Deployment(log, folder, engine.url, version)
        try:
            yield deployment
        finally:
            deployment.stop()


def rolled(deployment: Deployment, log: LogSettings, *versions: dict[str, str]) -> tuple[Agents, Agents]:
    """Goes from version to version under load. No client saw an error; what they saw."""
    name = uuid.uuid4().hex[:4]
    with (
        in_front(deployment.service) as url,
        loaded(url, 8, name=name) as agents,
        loaded(url, 8, 2.0, name) as slow,
        Silence(log) as silence,
    ):
        _goes_on(agents)
        began = time.monotonic()
        for version in versions:
            deployment.roll(version, agents)
        rate = len(agents.replied) / (time.monotonic() - began)
    longest = max(agents.latencies_s)
    print(
        f"{len(agents.replied)} calls, {rate:.0f}/s, longest reply {longest:.2f} s, {silence.longest_s:.1f} s unfolded"
    )
    assert (agents.errors + slow.errors, agents.refused + slow.refused) == ([], 0)
    assert deployment.service.refused == 0
    assert len(slow.replied) > 50, "connections that wait between calls were tried"
    assert silence.longest_s > 0, "it was looked at"
    return agents, slow


@only_in_soak
def test_an_upgrade_and_the_way_back_are_not_noticed(log_settings: LogSettings, tmp_path: Path) -> None:
    """Under load no client sees an error, nothing is lost, and the pool is what
    the oracle makes of the facts."""
    earlier = earlier_version(tmp_path / "earlier")
    old, new = {"PYTHONPATH": str(earlier)}, dict[str, str]()
    if fold_version(old) != FOLD_VERSION:
        pytest.skip("the newest change of a schema came with another fold: an upgrade is a generation of the pool")
    assert home_of(old).is_relative_to(earlier.parents[1])
    assert home_of(new).is_relative_to(PROJECT)
    with deployed(log_settings, tmp_path, old) as deployment:
        seen = rolled(deployment, log_settings, new, old)
        Found.of(log_settings).check(*seen)
        whole(log_settings)


@only_in_soak
def test_a_next_version_writes_what_this_one_reads(log_settings: LogSettings, tmp_path: Path) -> None:
    """Its gateways would write another schema, and are told not to: old and new side
    by side, there and back, and this version reads everything."""
    following = next_version(tmp_path / "next")
    old, careful = dict[str, str](), told_to_wait(following)
    assert home_of(careful).is_relative_to(following.parents[1])
    with deployed(log_settings, tmp_path, old) as deployment:
        seen = rolled(deployment, log_settings, careful, old)
        Found.of(log_settings).check(*seen)
        whole(log_settings)
        assert max(ids_written(log_settings)) <= max(schema_ids())


@only_in_soak
def test_a_next_version_writes_its_own_schema_in_the_end(log_settings: LogSettings, tmp_path: Path) -> None:
    """When all are new they are told no more: nobody notices, and the new version
    reads what it and the old one wrote."""
    following = next_version(tmp_path / "next")
    new, careful = {"PYTHONPATH": str(following)}, told_to_wait(following)
    newest = max(schema_ids())
    with deployed(log_settings, tmp_path, {}) as deployment:
        seen = rolled(deployment, log_settings, careful, new)
        written = ids_written(log_settings)
        print(
            f"{written[newest + 1]} records of the new schema, {written[current_ids()['claw.CallCaptured']]} of the old"
        )
        assert written[newest + 1] > 100
        look(log_settings, new, *seen)


def told_to_wait(following: Path) -> dict[str, str]:
    """The version there, told to write what this one reads."""
    return {"PYTHONPATH": str(following), "CLAW_SCHEMAS_UNTIL": str(max(schema_ids()))}


def ids_written(log: LogSettings) -> Counter[int]:
    """Counts the facts of each schema id."""
    return Counter(schema_id_of(record.value) for record in records(log, CALLS))


def look(log: LogSettings, version: dict[str, str], *agents: Agents) -> None:
    """Asks that version whether everything promised holds."""
    seen = [{"name": each.name, "replied": each.replied, "completed": each.completed} for each in agents]
    said = json.dumps({"log": log.model_dump(mode="json"), "agents": seen})
    argv = [sys.executable, "-m", "tests.e2e.other_eyes"]
    done = subprocess.run(
        argv, input=said, env={**os.environ, **version}, cwd=PROJECT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
