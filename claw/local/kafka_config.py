"""The settings of the local Kafka node: one KRaft process that is broker and controller, sized for a laptop. Pure."""

from pathlib import Path

LOG4J = """\
Configuration:
  Appenders:
    Console: {name: out, PatternLayout: {pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: out}}
    Logger:
      - {name: kafka.server.KafkaRaftServer, level: INFO}
"""


def server_properties(log_dir: Path, broker_port: int, controller_port: int) -> str:
    """Kafka's `server.properties`. Every topic is created by us and kept for ever; nothing is replicated."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
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
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _internal_topics(topic: str, min_isr: bool = False) -> dict[str, int]:
    settings = {f"{topic}.replication.factor": 1, f"{topic}.num.partitions": 4}
    return settings | ({f"{topic}.min.isr": 1} if min_isr else {})


def java_command(java: Path, jars: Path, log4j: Path, heap_mib: int, arguments: list[str]) -> list[str]:
    """Runs a main class of `jars`; only the first compiler, because a short-lived JVM never earns the second one back."""
    return [
        str(java),
        f"-Xmx{heap_mib}m",
        "-Xms64m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={log4j}",
        "-cp",
        f"{jars}/*",
        *arguments,
    ]
