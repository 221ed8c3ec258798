"""A cluster on one machine: how many nodes a home has, which ports, what every record costs to lose."""

import json
import socket
from pathlib import Path

import pytest

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.broker import resolve_broker
from claw_r1.claw.local.broker_command import run_broker
from claw_r1.claw.local.kafka.cluster import CLUSTER_FILE, LocalCluster, kept_count
from claw_r1.claw.local.kafka.config import member
from claw_r1.schemas.topics import CALLS, Catalogue


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new claw home, and no broker that is named."""
    monkeypatch.setenv("CLAW_HOME", str(tmp_path))
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    return tmp_path


@pytest.mark.parametrize(("there", "wanted"), [(1, "3"), (3, "2"), (3, "1")])
def test_the_number_of_nodes_of_a_home_is_never_changed(home: Path, there: int, wanted: str) -> None:
    """The refusal names both ways out, before anything is started."""
    folder = home / "broker"
    folder.mkdir()
    ports = [[number, number + 1] for number in range(there)]
    name, kept = ("ports.json", ports[0]) if there == 1 else (CLUSTER_FILE, {"cluster_id": "c", "ports": ports})
    (folder / name).write_text(json.dumps(kept))
    assert kept_count(folder) == there
    with pytest.raises(CannotRun, match=rf"begun with {there} node.*CLAW_HOME.*leave --nodes out"):
        run_broker(["--nodes", wanted])


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5"])
def test_a_number_that_is_none_is_a_mistake_of_usage(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is started; the usage says what it takes."""
    assert run_broker(["--nodes", number]) == 2
    assert "--nodes N" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", '{"cluster_id": "x", "ports": [1]}', '["x"]'])
def test_a_damaged_file_of_a_cluster_is_named(home: Path, text: str) -> None:
    """Taken for a new cluster its disks would be those of another one."""
    folder = home / "broker"
    folder.mkdir()
    (folder / CLUSTER_FILE).write_text(text)
    with pytest.raises(CannotRun, match=CLUSTER_FILE):
        resolve_broker()


def test_ports_that_a_foreign_program_has_are_given_up_by_all(home: Path) -> None:
    """The addresses of the controllers stand in every node's settings, so that all move together; who the cluster is stays."""
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        taken = foreign.getsockname()[1]
        kept = {"cluster_id": "same", "ports": [[taken, 2], [3, 4], [5, 6]]}
        (home / CLUSTER_FILE).write_text(json.dumps(kept))
        nodes = LocalCluster(home, 3)._members()
    assert all(taken not in (node.ports or ()) for node in nodes)
    assert {node.cluster_id for node in nodes} == {"same"}
    assert len({port for node in nodes for port in node.ports or ()}) == 6
    assert len({node.more["controller.quorum.voters"] for node in nodes}) == 1
    again = LocalCluster(home, 3)._members()
    assert [node.ports for node in again] == [node.ports for node in nodes]


@pytest.mark.parametrize(("nodes", "copies", "insync"), [(2, "2", "2"), (3, "3", "2"), (5, "3", "2")])
def test_a_majority_of_the_copies_has_every_record(nodes: int, copies: str, insync: str) -> None:
    """Kafka's own topics as well as ours."""
    settings = member(1, range(9000, 9000 + nodes))
    assert (
        settings["transaction.state.log.replication.factor"] == settings["offsets.topic.replication.factor"] == copies
    )
    assert settings["transaction.state.log.min.isr"] == settings["min.insync.replicas"] == insync
    ours = Catalogue(replication=int(copies)).settings(CALLS)
    assert (ours["min.insync.replicas"], ours["unclean.leader.election.enable"]) == (insync, "false")
    assert Catalogue().settings(CALLS) == CALLS.settings()
