"""The real broker of the tests, one for each process of the suite: a given one, a container where an engine answers and has our image of
Kafka, or a local node."""

import contextlib
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from claw_r1.claw.local.broker import check_answers
from claw_r1.claw.local.kafka.config import server_properties
from claw_r1.claw.local.kafka.node import START_TIMEOUT_S, LocalBroker
from claw_r1.claw.local.ports import any_answers, free_ports
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import Catalogue

IMAGE = "claw-kafka"
"""The image that `infra/images/build.sh kafka` makes."""
OTHER_IMAGE = "CLAW_TEST_KAFKA_IMAGE"
"""The variable that names another image with the variables of Apache Kafka's own; none: no container is used."""
TEST_PARTITIONS = 2


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`host:port` of a broker that lives as long as the session. A test must not stop it: `local_broker` is for that."""
    if given := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield check_answers(given)
    elif image := image_at_hand():
        with kafka_container(image) as bootstrap:
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


def image_at_hand() -> str | None:
    """The image from which the tests take their Kafka: that which `OTHER_IMAGE` names, else ours; None where no container
    engine answers, or it has none."""
    named = os.environ.get(OTHER_IMAGE)
    reachable = os.environ.get("DOCKER_HOST") or Path("/var/run/docker.sock").exists()
    if named == "none" or not reachable:
        return None
    import docker
    from docker.errors import DockerException

    try:
        with contextlib.closing(docker.from_env(timeout=10)) as engine:
            if named is None:
                engine.images.get(IMAGE)
            engine.ping()
    except DockerException:
        return None
    return named or IMAGE


@contextlib.contextmanager
def kafka_container(image: str) -> Iterator[str]:
    """A node in a container, with this machine's loopback as its network and the settings of a local node; its data goes with it."""
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # the fixture itself removes what it started
    from testcontainers.core.container import DockerContainer

    port, controller_port = free_ports(2)
    settings = container_settings(port, controller_port)
    container = DockerContainer(image).with_envs(**settings).with_kwargs(network_mode="host")
    with container:
        if not any_answers([("127.0.0.1", port)], START_TIMEOUT_S):
            raise RuntimeError(f"{image} does not answer on port {port}: {container.get_logs()}")
        yield f"127.0.0.1:{port}"


def container_settings(port: int, controller_port: int) -> dict[str, str]:
    """The settings of a local node as environment of Apache Kafka's image, or of ours."""
    properties = server_properties(Path("/tmp/kafka-data"), port, controller_port)
    pairs = (line.split("=", 1) for line in properties.splitlines())
    return {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in pairs}
