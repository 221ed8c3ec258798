"""Kafka's own console tools, run from the fetched jars."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import claw_home
from claw_r1.claw.local.jars import kafka_jars
from claw_r1.claw.local.java import find_java
from claw_r1.claw.local.kafka.config import LOG4J, java_command
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.files import write_atomically, write_secret

TOOL_HEAP_MIB = 256
TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}


def tool_command(name: str, arguments: Sequence[str], bootstrap: str) -> list[str]:
    """The command line of one of Kafka's own console tools (`TOOLS`); the broker's address is added where none is given.

    On a secured wire the access is that of `CLAW_LOG_SECURITY_*`, unless --command-config names another.

    Raises `CannotRun` for an unknown tool.
    """
    if name not in TOOLS:
        raise CannotRun(f"Kafka has no tool {name!r} here; there are: {', '.join(sorted(TOOLS))}")
    address = [] if "--bootstrap-server" in arguments else ["--bootstrap-server", bootstrap]
    if (log := LogSettings()).secured and "--command-config" not in arguments:
        address += ["--command-config", str(_client_properties(log))]
    log4j = claw_home() / "cache" / "log4j2-tools.yaml"
    log4j.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(log4j, LOG4J)
    return java_command(find_java(), kafka_jars(), log4j, TOOL_HEAP_MIB, [TOOLS[name], *address, *arguments])


def _client_properties(log: LogSettings) -> Path:
    """The access of these settings in a file for Kafka's tools, which only its owner can read. Raises CannotRun."""
    if log.security_mechanism == "OAUTHBEARER" and log.security_protocol.startswith("SASL"):
        raise CannotRun("Kafka's tools take no token of ours: name their own settings by --command-config")
    settings: dict[str, str] = {"security.protocol": log.security_protocol}
    if log.security_protocol.startswith("SASL"):
        scram, quoted = "org.apache.kafka.common.security.scram.ScramLoginModule", json.dumps(log.secret())
        module = (
            scram if "SCRAM" in log.security_mechanism else "org.apache.kafka.common.security.plain.PlainLoginModule"
        )
        settings["sasl.mechanism"] = log.security_mechanism
        settings["sasl.jaas.config"] = f'{module} required username="{log.security_username}" password={quoted};'
    if pem := log.pem():
        authorities, certificate, key = pem.texts()
        names = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key")
        settings |= {name: text for name, text in zip(names, (authorities, certificate, key), strict=True) if text}
        settings |= {
            f"ssl.{store}.type": "PEM" for store, text in (("truststore", authorities), ("keystore", key)) if text
        }
    path = claw_home() / "cache" / "kafka-client.properties"
    write_secret(path, "".join(f"{name}={_continued(value)}\n" for name, value in settings.items()))
    return path


def _continued(value: str) -> str:
    """A value of Java's properties over several lines."""
    return value.replace("\\", "\\\\").strip().replace("\n", "\\n\\\n")


def kafka_tool(name: str, arguments: Sequence[str], bootstrap: str) -> int:
    """Runs a console tool on this terminal and returns its exit code."""
    return subprocess.run(tool_command(name, arguments, bootstrap), check=False).returncode
