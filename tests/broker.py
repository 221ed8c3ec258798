"""The real broker of the tests, one for each process of the suite: a given one, a container where an engine answers, or a local node."""

import contextlib
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from claw_r1.claw.local.broker import check_answers
from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.local.ports import any_answers, free_ports
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import Catalogue

DEFAULT_IMAGE = "apache/kafka:4.3.1"
CONTAINER_READY_TIMEOUT_S = 60.0
TEST_PARTITIONS = 2


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`host:port` of a broker that lives as long as the session. A test must not stop it: `local_broker` is for that."""
    if given := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield check_answers(given)
    elif engine_answers():
        with kafka_container(os.environ.get("CLAW_TEST_KAFKA_IMAGE", DEFAULT_IMAGE)) as bootstrap:
            yield bootstrap
    else:
        with LocalBroker(tmp_path_factory.mktemp("broker")) as local:
            yield local.bootstrap


@pytest.fixture(scope="session")
def killable_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """One node for all tests that stop theirs: a start costs more than most of these tests. Ask for `local_broker`."""
    local = LocalBroker(tmp_path_factory.mktemp("killable"))
    yield local
    local.stop()


@pytest.fixture
def local_broker(killable_broker: LocalBroker) -> Iterator[LocalBroker]:
    """A node that runs when the test begins, and that it may pause, stop and kill: the next test finds it running again."""
    yield killable_broker.start()
    if process := killable_broker.process:
        process.signal(signal.SIGCONT)


@pytest.fixture
def local_log(local_broker: LocalBroker) -> LogSettings:
    """`log_settings` on `local_broker`."""
    return new_log(local_broker.bootstrap)


@pytest.fixture
def log_settings(broker: str) -> LogSettings:
    """A log of the test's own on the shared broker."""
    return new_log(broker)


def new_log(bootstrap: str, replication: int = 1) -> LogSettings:
    """A fresh prefix, few partitions, every topic created."""
    from claw_r1.eventlog.kafka.admin import (
        create_topics,  # imports the Kafka client, which tests without a broker do not need
    )

    prefix = f"t{uuid.uuid4().hex[:10]}"
    settings = LogSettings(
        bootstrap_servers=bootstrap, prefix=prefix, partitions=TEST_PARTITIONS, replication=replication
    )
    create_topics(settings)
    return settings


@pytest.fixture
def catalogue(log_settings: LogSettings) -> Catalogue:
    """The topics of `log_settings`."""
    return log_settings.catalogue()


def engine_answers() -> bool:
    """Whether a container engine answers here and the tests may use it (`CLAW_TEST_KAFKA_IMAGE=none`: they may not)."""
    if os.environ.get("CLAW_TEST_KAFKA_IMAGE") == "none":
        return False
    reachable = os.environ.get("DOCKER_HOST") or Path("/var/run/docker.sock").exists()
    if not reachable:
        return False
    import docker
    from docker.errors import DockerException

    try:
        with contextlib.closing(docker.from_env(timeout=3)) as engine:
            return bool(engine.ping())
    except DockerException:
        return False


@contextlib.contextmanager
def kafka_container(image: str) -> Iterator[str]:
    """Apache Kafka's own image (or one that takes its settings) on a free port of this machine."""
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # the fixture itself removes what it started
    from testcontainers.core.container import DockerContainer

    (port,) = free_ports(1)
    container = DockerContainer(image).with_bind_ports(9092, port)
    for name, value in container_settings(port).items():
        container = container.with_env(name, value)
    with container:
        if not any_answers([("127.0.0.1", port)], CONTAINER_READY_TIMEOUT_S):
            raise RuntimeError(f"{image} does not answer on port {port}: {container.get_logs()}")
        yield f"127.0.0.1:{port}"


def container_settings(port: int) -> dict[str, str]:
    """Environment of Apache Kafka's image; `ADVERTISED` is for the image that `infra/` builds."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
    }
    image_names = {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in settings.items()}
    return {**image_names, "ADVERTISED": f"127.0.0.1:{port}"}
