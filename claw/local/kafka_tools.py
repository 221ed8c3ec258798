"""Kafka's own console tools, run from the fetched jars."""

import subprocess
from collections.abc import Sequence

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import claw_home
from claw_r1.claw.local.jars import kafka_jars
from claw_r1.claw.local.java import find_java
from claw_r1.claw.local.kafka_config import LOG4J, java_command
from claw_r1.runtime.files import write_atomically

TOOL_HEAP_MIB = 256
TOOLS = {
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

    Raises `CannotRun` for an unknown tool.
    """
    if name not in TOOLS:
        raise CannotRun(f"Kafka has no tool {name!r} here; there are: {', '.join(sorted(TOOLS))}")
    address = [] if "--bootstrap-server" in arguments else ["--bootstrap-server", bootstrap]
    log4j = claw_home() / "cache" / "log4j2-tools.yaml"
    log4j.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(log4j, LOG4J)
    return java_command(find_java(), kafka_jars(), log4j, TOOL_HEAP_MIB, [TOOLS[name], *address, *arguments])


def kafka_tool(name: str, arguments: Sequence[str], bootstrap: str) -> int:
    """Runs a console tool on this terminal and returns its exit code."""
    return subprocess.run(tool_command(name, arguments, bootstrap), check=False).returncode
