"""How a broker of three is lost, and comes back: while it is away, something goes
on."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from claw_r1.claw.local.kafka.cluster import LocalCluster
from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.local.kafka.tools import tool_command
from tests.soak import SOAK

ISOLATED_S = 60.0 if SOAK else 10.0
"""Longer than a broker's session (3 s): the others elect new leaders meanwhile."""


def in_sync(cluster: LocalCluster) -> bool:
    """Whether every replica of every partition has all records."""
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10).topics.values()
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    return all(len(partition.isrs) == len(partition.replicas) for partition in partitions)


def controller(cluster: LocalCluster) -> LocalBroker:
    """The node whose controller leads the quorum."""
    asked = tool_command("metadata-quorum", ["describe", "--status"], cluster.bootstrap)
    said = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout
    leader = next(line.split()[-1] for line in said.splitlines() if line.startswith("LeaderId"))
    return cluster.nodes[int(leader) - 1]


def one_killed(cluster: LocalCluster, goes_on: Callable[[], None]) -> None:
    cluster.nodes[0].kill()
    goes_on()
    cluster.nodes[0].start()


def another_killed_while_the_first_catches_up(cluster: LocalCluster, goes_on: Callable[[], None]) -> None:
    """Two of three are away for a moment: no record can be written then, and none
    is refused."""
    first, second, _ = cluster.nodes
    first.kill()
    goes_on()
    process = first.launch()
    second.kill()
    goes_on()
    first.await_answer(process)
    second.start()


def controller_killed(cluster: LocalCluster, goes_on: Callable[[], None]) -> None:
    node = controller(cluster)
    node.kill()
    goes_on()
    node.start()


def disk_emptied(cluster: LocalCluster, goes_on: Callable[[], None]) -> None:
    """The node comes back with nothing, and has all of it from the others."""
    node = cluster.nodes[2]
    node.kill()
    shutil.rmtree(node.data_dir / "data")
    goes_on()
    node.start()


def one_isolated(cluster: LocalCluster, goes_on: Callable[..., None]) -> None:
    """It holds its connections and answers nothing, as behind a cut wire; what
    comes meanwhile is folded meanwhile."""
    process = cluster.nodes[1].process
    assert process is not None
    process.signal(signal.SIGSTOP)
    try:
        end = time.monotonic() + ISOLATED_S
        goes_on(folds=True)
        time.sleep(max(0.0, end - time.monotonic()))
    finally:
        process.signal(signal.SIGCONT)
