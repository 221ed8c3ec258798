"""The local broker and how a broker is found."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from claw_r1.claw.demo.display import Display
from claw_r1.claw.demo.run import Demo
from claw_r1.claw.demo.settings import DemoSettings
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.broker import ANSWER_TIMEOUT_S, Broker, check_answers, resolve_broker
from claw_r1.claw.local.kafka.node import LocalBroker, new_cluster_id
from claw_r1.claw.local.kafka.tools import tool_command
from claw_r1.claw.local.ports import BROKER_NAMES, TRY_S, any_answers, is_free, kafka_answers, split_servers
from claw_r1.claw.local.stack import Stack
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.processes.process_identity import ProcessId
from tests.patience import PATIENCE_S, until


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where something listens and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_list_of_servers_is_host_and_port_pairs() -> None:
    """Anything that is no host:port is refused, with what was written."""
    assert split_servers("a:1, [::1]:9092") == [("a", 1), ("::1", 9092)]
    for wrong in ("", "kafka", "kafka:port", ":9092"):
        with pytest.raises(ValueError, match="host:port"):
            split_servers(wrong)


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "{silent}", "127.0.0.1:1,{silent}"])
def test_a_broker_that_refuses_is_one_line_that_names_the_ways(servers: str, silent_port: int) -> None:
    """Nothing there, or something that is no broker: an error with the address and the ways."""
    with pytest.raises(CannotRun, match=r"^no Kafka broker answers at 127\.0\.0\.1.*unset the variable"):
        check_answers(servers.format(silent=f"127.0.0.1:{silent_port}"), timeout_s=0.3)


def test_a_named_broker_is_away_where_no_server_of_it_answers(silent_port: int) -> None:
    """A local one is started again by whoever looks after it, so nothing is excused by it."""
    gone = Broker(f"127.0.0.1:1,127.0.0.1:{silent_port}")
    assert gone.is_away()
    assert not Broker(gone.bootstrap, LocalBroker(Path("broker"))).is_away()


@pytest.mark.kafka
def test_a_broker_of_which_one_server_answers_is_not_away(broker: str) -> None:
    """Deaths count then: what ends again and again has a reason of its own."""
    assert not Broker(f"127.0.0.1:1,{broker}").is_away()


def test_no_try_lasts_longer_than_the_time_that_is_left() -> None:
    """Of several brokers the last one is not given a full try."""
    tries: list[float] = []

    def refuse(host: str, port: int, timeout_s: float) -> bool:
        tries.append(timeout_s)
        return False

    assert not any_answers([("a", 1), ("b", 2)], 0.3, refuse)
    assert max(tries) <= 0.3


def test_nobody_waits_longer_than_ten_seconds_for_a_broker_that_refuses() -> None:
    """The default limit is the one that is promised."""
    assert ANSWER_TIMEOUT_S + TRY_S <= 10


def test_a_wrong_address_is_refused_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is no address is named as such."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "not an address")
    with pytest.raises(CannotRun, match=r"^KAFKA_BOOT.*not an address.*write host:port"):
        resolve_broker()


def test_commands_go_by_the_name_that_rooms_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own counts first, for whoever reads the log; what a stack starts goes by the broker that the stack has."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("CLAW_LOG_BOOTSTRAP_SERVERS", "ours, not an address")
    assert LogSettings().bootstrap_servers == "ours, not an address"
    with pytest.raises(CannotRun, match=r"^CLAW_LOG_BOOT.*ours, not an address.*write host:port"):
        resolve_broker()
    for name, value in Stack(run_dir=Path("run"), bootstrap="127.0.0.1:2").environment().items():
        monkeypatch.setenv(name, value)
    assert LogSettings().bootstrap_servers == "127.0.0.1:2"


def test_a_folder_that_kafka_would_take_for_two_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It made the second half below wherever the command was typed."""
    for name in BROKER_NAMES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CannotRun, match="has a comma"):
        resolve_broker(tmp_path / "runs,old")


def test_a_broker_says_whose_it_is_and_where(tmp_path: Path) -> None:
    """One that was named, one of the claw home that runs already, one that was started here."""
    named = Broker("kafka.example:9092").origin
    assert named == "using the broker at kafka.example:9092, which KAFKA_BOOTSTRAP_SERVERS names"
    local = LocalBroker(tmp_path)
    assert Broker("127.0.0.1:9", local).origin.startswith(
        "using the Kafka of this claw home, which runs already, at 127.0.0.1:9 "
    )
    local.started_here = True
    started = Broker("127.0.0.1:9", local).origin
    assert started.startswith(f"started Kafka at 127.0.0.1:9 (data is kept in {tmp_path};")


@pytest.mark.kafka
def test_a_demo_says_which_broker_it_uses(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its first lines: it starts none where one is named."""
    monkeypatch.setenv("CLAW_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", str(log_settings.bootstrap_servers))
    with ExitStack() as resources:
        Demo.open(DemoSettings(prefix=f"{log_settings.prefix}-demo"), resources, Display(as_json=True))
    _, second, *_ = capsys.readouterr().err.splitlines()
    assert second == f"using the broker at {log_settings.bootstrap_servers}, which KAFKA_BOOTSTRAP_SERVERS names"


@pytest.mark.kafka
def test_a_demo_takes_the_topics_that_a_stack_left(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """README's first two parts, one after the other: `claw up` made other partitions than a demo asks for, and it was refused."""
    monkeypatch.setenv("CLAW_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", str(log_settings.bootstrap_servers))
    with ExitStack() as resources:
        demo = Demo.open(DemoSettings(prefix=log_settings.prefix), resources, Display(as_json=True))
    assert demo.stack.partitions == log_settings.partitions


def test_an_unknown_tool_names_the_known_ones() -> None:
    """The error lists Kafka's tools."""
    with pytest.raises(CannotRun, match="consumer-groups"):
        tool_command("nonsense", [], "127.0.0.1:1")


def test_asked_for_a_port_in_use_the_broker_refuses(tmp_path: Path, silent_port: int) -> None:
    """A port that a person chose is never exchanged for another."""
    with pytest.raises(CannotRun, match=f"port {silent_port} is in use"):
        LocalBroker(tmp_path, ports=(silent_port, 1)).start()


@pytest.mark.kafka
@pytest.mark.slow
def test_the_node_of_a_data_directory_is_found_again_killed_and_restarted(tmp_path: Path) -> None:
    """One node per directory: a second start finds it; after kill -9 it comes back on its ports with its topics."""
    with LocalBroker(tmp_path / "data") as first:
        process, bootstrap = first.process, first.bootstrap
        subprocess.run(
            tool_command("topics", ["--create", "--topic", "kept"], bootstrap), check=True, capture_output=True
        )
        with LocalBroker(tmp_path / "data") as second:
            assert (second.process, second.started_here) == (process, False)
        assert process is not None
        assert process.alive, "who found the node does not stop it"

        assert not first.revive(), "it lives"
        process.signal(signal.SIGKILL)
        assert process.wait(PATIENCE_S)
        assert first.revive()
        assert first.bootstrap == bootstrap
        listed = subprocess.run(
            tool_command("topics", ["--list"], bootstrap), check=True, capture_output=True, text=True
        )
        assert "kept" in listed.stdout.split()
        last = first.process
    assert last is not None
    assert not last.alive


@pytest.mark.kafka
@pytest.mark.slow
def test_a_node_that_was_found_is_started_when_it_has_ended(tmp_path: Path) -> None:
    """`claw demo` had started it, and took it along from under a `claw up`, which keeps it running: at its address, until its own end."""
    first = LocalBroker(tmp_path).start()
    with Broker(first.bootstrap, LocalBroker(tmp_path).start()) as found:
        process = first.process
        found.look_after()
        assert first.process == process
        first.stop()
        found.look_after()
        assert until(lambda: kafka_answers(*split_servers(found.bootstrap)[0]))
        assert first.process is not None
    assert first.process is None


@pytest.mark.kafka
@pytest.mark.slow
def test_kept_ports_that_another_program_took_are_given_up(tmp_path: Path) -> None:
    """A foreign listener on a kept port is neither used nor collided with."""
    broker = LocalBroker(tmp_path).start()
    old = int(broker.bootstrap.rpartition(":")[2])
    broker.stop()
    assert is_free(old)
    with socket.create_server(("127.0.0.1", old)), broker.start():
        new = int(broker.bootstrap.rpartition(":")[2])
        assert new != old
        assert until(lambda: kafka_answers("127.0.0.1", new))


STARTER = """
import sys
from pathlib import Path
from claw_r1.claw.local.kafka.node import LocalBroker
broker = LocalBroker(Path(sys.argv[1])).start()
print(broker.process.pid, file=sys.stdout, flush=True)
sys.stdin.read()
"""


@pytest.mark.kafka
@pytest.mark.slow
def test_a_node_dies_with_its_starter(tmp_path: Path) -> None:
    """kill -9 of the starter ends the node."""
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = next(int(line) for line in starter.stdout if line.strip().isdigit())
        starter.send_signal(signal.SIGKILL)
    node = ProcessId.of(pid)
    assert node is None or node.wait(PATIENCE_S)


@pytest.mark.kafka
def test_the_shared_broker_answers(broker: str) -> None:
    """The session's broker is a Kafka broker, whichever way it was found."""
    host, port = split_servers(broker)[0]
    assert until(lambda: kafka_answers(host, port))
    assert os.environ.get("KAFKA_BOOTSTRAP_SERVERS", broker) == broker


def test_a_cluster_id_never_looks_like_an_option() -> None:
    """One random id in 64 would begin with a dash, and Kafka's format tool would take it for an option."""
    assert not [made for made in (new_cluster_id() for _ in range(2000)) if made.startswith("-") or len(made) != 22]
