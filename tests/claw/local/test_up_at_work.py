"""`claw up`, `claw status` and `claw down` as a person runs them, on a stack without an engine."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from claw_r1.eventlog.settings import LogSettings

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


class Person:
    """Somebody who types commands, with a claw home and a broker of the test's."""

    def __init__(self, home: Path, log: LogSettings) -> None:
        self._prefix = log.prefix
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
