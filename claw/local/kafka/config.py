"""The settings of a local Kafka node: a KRaft process that is broker and controller, sized for a laptop. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from claw_r1.claw.tls.tls_dir import USER, TlsDir
from claw_r1.schemas.topics import insync_of

LOG4J = """\
Configuration:
  Appenders:
    Console: {name: out, PatternLayout: {pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: out}}
    Logger:
      - {name: kafka.server.KafkaRaftServer, level: INFO}
"""

MECHANISM = "SCRAM-SHA-512"
COPIES_MAX = 3


def server_properties(
    log_dir: Path,
    broker_port: int,
    controller_port: int,
    tls: TlsDir | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Kafka's `server.properties`. Every topic is created by us and kept
    for ever; nothing is replicated.

    tls: clients speak TLS and say who they are, and what they may do is asked of Kafka's own authorizer.
    """
    protocol = "SASL_SSL" if tls else "PLAINTEXT"
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"CLIENTS://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"CLIENTS://127.0.0.1:{broker_port}",
        "listener.security.protocol.map": f"CLIENTS:{protocol},CONTROLLER:{'SSL' if tls else 'PLAINTEXT'}",
        "inter.broker.listener.name": "CLIENTS",
        "controller.listener.names": "CONTROLLER",
        **(_secured(tls) if tls else {}),
        "log.dirs": log_dir,
        "auto.create.topics.enable": "false",
        "log.retention.ms": -1,
        "log.segment.bytes": 64 * 2**20,
        # Internal topics: one copy, few partitions (a restart after kill -9 opens every partition's directory).
        **_internal_topics("offsets.topic"),
        **_internal_topics("transaction.state.log", min_isr=True),
        **_internal_topics("share.coordinator.state.topic", min_isr=True),
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "group.coordinator.append.linger.ms": 1,
        "broker.heartbeat.interval.ms": 1000,
        "broker.session.timeout.ms": 3000,
        "metadata.max.idle.interval.ms": 0,  # no record that says nothing every 0.5 s: half of what an idle node costs
        # Few threads and small buffers: 160-190 MiB resident instead of 500.
        "num.network.threads": 2,
        "num.io.threads": 2,
        "background.threads": 2,
        "group.coordinator.threads": 1,
        "share.coordinator.threads": 1,
        "log.cleaner.dedupe.buffer.size": 16 * 2**20,
        "log.index.size.max.bytes": 2**20,
        **more,
    }
    return "".join(f"{name}={_as_property(value)}\n" for name, value in settings.items())


def _as_property(value: object) -> str:
    """Writes a value as Java reads it in such a file: of ASCII alone, with the rest and backslashes by their numbers."""
    return "".join(each if " " <= each <= "~" and each != "\\" else _numbered(each) for each in str(value))


def _numbered(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def member(number: int, controller_ports: Sequence[int]) -> dict[str, str]:
    """Settings of node `number`, from 1, of a cluster whose controllers listen on these ports of loopback: a record that
    was acknowledged outlives any one node."""
    voters = (f"{node}@127.0.0.1:{port}" for node, port in enumerate(controller_ports, 1))
    copies = min(COPIES_MAX, len(controller_ports))
    internal = {
        f"{topic}.replication.factor": str(copies)
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    }
    insync = str(insync_of(copies))
    return {
        "node.id": str(number),
        "controller.quorum.voters": ",".join(voters),
        **internal,
        "transaction.state.log.min.isr": insync,
        "share.coordinator.state.topic.min.isr": insync,
        "min.insync.replicas": insync,
        "unclean.leader.election.enable": "false",
    }


def _secured(tls: TlsDir) -> dict[str, object]:
    """The node proves itself to itself, too: as broker by the stack's user, as controller by its certificate."""
    module = "org.apache.kafka.common.security"
    scram = f'{module}.scram.ScramLoginModule required username="{USER}" password="{tls.password.read_text().strip()}";'
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": tls.server.resolve(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": tls.authority.resolve(),
        "listener.name.controller.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        f"listener.name.clients.{MECHANISM.lower()}.sasl.jaas.config": scram,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{USER};User:{tls.subject()}",
    }


def _internal_topics(topic: str, min_isr: bool = False) -> dict[str, int]:
    settings = {f"{topic}.replication.factor": 1, f"{topic}.num.partitions": 4}
    return settings | ({f"{topic}.min.isr": 1} if min_isr else {})


def class_archive(java: Path, jars: Path) -> Path:
    """Returns the file of the archived classes of these jars for this Java, which need not be there."""
    binary = java.resolve()
    stat = binary.stat()
    maker = hashlib.sha256(f"{binary} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:12]
    return jars.with_name(f"{jars.name}-{maker}.jsa")


def _class_sharing(archive: Path) -> list[str]:
    """Silent where the JVM does not take it: what a tool prints is read by programs."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"] if archive.exists() else []


def java_command(java: Path, jars: Path, log4j: Path, heap_mib: int, arguments: list[str]) -> list[str]:
    """Runs a main class of `jars`; only the first compiler, because a short-lived JVM never earns the second one back."""
    return [
        str(java),
        f"-Xmx{heap_mib}m",
        "-Xms64m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *_class_sharing(class_archive(java, jars)),
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={log4j}",
        "-cp",
        f"{jars}/*",
        *arguments,
    ]
