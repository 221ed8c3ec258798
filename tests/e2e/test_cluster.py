"""Three brokers, of which one at a time is lost: nothing that was acknowledged
goes, nothing is in the pool twice, nobody ends."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from claw_r1.claw.local.kafka.cluster import LocalCluster
from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS
from tests.broker import new_log
from tests.e2e.troubles import (
    another_killed_while_the_first_catches_up,
    controller_killed,
    disk_emptied,
    in_sync,
    one_isolated,
    one_killed,
)
from tests.gateway.engine import ScriptedEngine
from tests.gateway.processes import Found, GatewayProcess, loaded
from tests.gateway.speaking import answer
from tests.patience import PATIENCE_S, until
from tests.soak import in_soak
from tests.streams.pool import WorkerProcess, folded_up_to, whole

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes, whole at the beginning of each test that asks for `replicated`."""
    running = LocalCluster(tmp_path_factory.mktemp("cluster"), 3).start()
    yield running
    running.stop()


@pytest.fixture
def replicated(cluster: LocalCluster) -> LogSettings:
    """A log of the test's own in three copies."""
    until(lambda: in_sync(cluster))
    return new_log(cluster.bootstrap, replication=3)


TROUBLES = (
    controller_killed,
    in_soak(one_killed),
    in_soak(another_killed_while_the_first_catches_up),
    in_soak(disk_emptied),
    in_soak(one_isolated),
)


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    """A scripted engine of all protocols."""
    with ScriptedEngine(answer) as running:
        yield running


@pytest.mark.parametrize("trouble", TROUBLES)
def test_capture_and_folds_outlive_a_broker(
    cluster: LocalCluster,
    replicated: LogSettings,
    engine: ScriptedEngine,
    tmp_path: Path,
    trouble: Callable[[LocalCluster, Callable[[], None]], None],
) -> None:
    """Under load: each call is answered, is in the log, and is folded once;
    gateway and streams are those of the beginning."""
    running = GatewayProcess(replicated, tmp_path, "--upstream", engine.url)
    streams = WorkerProcess(replicated, tmp_path / "streams.log")
    try:
        until(lambda: streams.said("streams_assigned"))
        with loaded(running.url, 4) as agents:

            def goes_on(*, folds: bool = False) -> None:
                seen, began = len(agents.replied), time.monotonic()
                until(lambda: len(agents.replied) > seen + 50)
                if folds:
                    ends = end_offsets(replicated, [CALLS])
                    until(lambda: folded_up_to(replicated, ends), patience_s=2 * PATIENCE_S)
                    print(f"folded after {time.monotonic() - began:.0f} s")

            goes_on()
            began, before = time.monotonic(), len(agents.replied)
            trouble(cluster, goes_on)
            until(lambda: in_sync(cluster))
            rate = (len(agents.replied) - before) / (time.monotonic() - began)
            goes_on()
        until(lambda: running.metric("claw_spool_records") == 0)
        print(f"{len(agents.replied)} calls, {rate:.0f}/s in trouble, longest {max(agents.latencies_s):.1f} s")
        assert agents.errors == []
        assert running.metric("claw_capture_lost_total") == 0
        assert running.process.poll() is None
        Found.of(replicated).check(agents, duplicates=True)
        whole(replicated)
        assert streams.running, streams.log()
    finally:
        streams.stop()
        running.stop(20)
