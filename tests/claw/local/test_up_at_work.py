"""`claw up`, `claw status` and `claw down` as a person runs them, on a stack without an engine."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.local.status_file import read_manager, read_status
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.processes.component import ComponentState
from claw_r1.runtime.processes.restarts import RestartBudget
from tests.patience import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


class Person:
    """Somebody who types commands, with a claw home and a broker of the test's."""

    def __init__(self, home: Path, log: LogSettings) -> None:
        self.run_dir, self._prefix = home / "up", log.prefix
        self._environment = {
            **os.environ,
            "CLAW_HOME": str(home),
            "KAFKA_BOOTSTRAP_SERVERS": log.bootstrap_servers,
            "CLAW_LOG_PARTITIONS": str(log.partitions),
        }

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.types("up", "--port", "0", "--prefix", self._prefix)

    def types(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "claw_r1.claw", *words]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=300, check=False)

    def states(self) -> dict[str, str]:
        """The state of each component, as `claw status --json` has it."""
        return {
            each["component"]: each["state"] for each in json.loads(self.types("status", "--json").stdout)["components"]
        }

    def component(self, name: str) -> ComponentState:
        """A component as the manager wrote it, without a look at Kafka."""
        return next(each for each in read_status(self.run_dir) if each.component == name)


@pytest.fixture
def person(tmp_path: Path, log_settings: LogSettings) -> Iterator[Person]:
    """Whatever happens, their stack is stopped at the end."""
    person = Person(tmp_path / "home", log_settings)
    yield person
    person.types("down")


def test_a_stack_comes_up_is_listed_and_goes_down(person: Person) -> None:
    """`up` returns once the gateway answers, a second one is refused, `status` lists it, `down` leaves no process."""
    started = person.up()
    assert started.returncode == 0, started.stderr
    gateway = next(part for part in started.stdout.strip().split(", ") if part.startswith("gateway ")).split()[1]
    with urllib.request.urlopen(f"{gateway}/livez", timeout=10) as reply:
        assert reply.status == 200
    assert person.states() == {"gateway": "running", "streams": "running"}
    second = person.up()
    assert (second.returncode, "a stack runs already" in second.stderr) == (2, True)

    listed = json.loads(person.types("status", "--json").stdout)["components"]
    stopped = person.types("down")
    assert (stopped.returncode, stopped.stdout.strip()) == (0, "stopped")
    assert [each["pid"] for each in listed if Path(f"/proc/{each['pid']}").exists()] == []
    assert person.types("status").returncode == 1
    assert person.types("down").returncode == 1


def test_a_stack_outlives_a_kafka_that_is_not_its_own(
    tmp_path: Path, local_broker: LocalBroker, local_log: LogSettings
) -> None:
    """While the Kafka that a variable names is away, streams die and none of their successors can start. The gateway serves on, and
    the streams run once more when Kafka is back: the manager ended them all, and agents met a closed port."""
    person = Person(tmp_path / "home", local_log)
    try:
        assert person.up().returncode == 0
        gateway, kafka = person.component("gateway"), local_broker.process
        assert kafka is not None
        kafka.signal(signal.SIGSTOP)
        for deaths in range(RestartBudget().restarts_max + 1):
            until(lambda deaths=deaths: person.component("streams").restarts >= deaths)  # type: ignore[misc]  # mypy cannot infer it
            os.kill(until(lambda: person.component("streams").pid), signal.SIGKILL)
        until(lambda: person.component("streams").restarts > RestartBudget().restarts_max)
        assert person.component("gateway") == gateway
        begun = (streams_log := person.run_dir / "logs" / "streams.log").stat().st_size
        kafka.signal(signal.SIGCONT)
        until(lambda: b"streams_assigned" in streams_log.read_bytes()[begun:])
        assert read_manager(person.run_dir) is not None
    finally:
        if local_broker.process is not None:
            local_broker.process.signal(signal.SIGCONT)
        person.types("down")
