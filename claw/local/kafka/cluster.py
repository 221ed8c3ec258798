"""Several Apache Kafka nodes on this machine as one cluster: each is broker and controller, each has a disk of its own.

It is for trying what a cluster does that loses a node. Three copies of a record on one machine are no safer than one.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import structlog

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local import ports as tcp
from claw_r1.claw.local.kafka.config import member
from claw_r1.claw.local.kafka.node import LocalBroker, new_cluster_id
from claw_r1.claw.tls.tls_dir import TlsDir
from claw_r1.eventlog.locks import exclusive
from claw_r1.runtime.files import write_atomically

log = structlog.get_logger()

CLUSTER_FILE = "cluster.json"

Ports: TypeAlias = list[tuple[int, int]]


@dataclass
class LocalCluster:
    """The nodes in `data_dir`, as many as it was begun with. Each is a `LocalBroker`, to be
    killed and started alone."""

    data_dir: Path
    count: int
    tls: TlsDir | None = None
    more: Mapping[str, str] = field(default_factory=dict)
    """More of Kafka's own settings, for every node."""
    nodes: tuple[LocalBroker, ...] = field(default=(), init=False)

    @property
    def bootstrap(self) -> str:
        """Every node's `host:port` for clients, once started."""
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def started_here(self) -> bool:
        """Some node was launched by `start`, rather than found alive."""
        return any(node.started_here for node in self.nodes)

    def start(self) -> "LocalCluster":
        """Returns when every node answers. Raises `CannotRun` as a node does."""
        self.data_dir = self.data_dir.resolve()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with exclusive(self.data_dir / "start.lock"):
            self.nodes = self.nodes or self._members()
            for node in self.nodes:
                node.check_password()
            running = [(node, node.process or node.launch()) for node in self.nodes]  # one alone has no controller
            for node, process in running:
                node.await_answer(process)
        log.info("brokers_ready", bootstrap=self.bootstrap, reused=not self.started_here)
        return self

    def stop(self) -> None:
        """Stops the nodes at once: of two that stop in turn the last one waits for a controller that is gone."""
        with ThreadPoolExecutor() as threads:
            list(threads.map(LocalBroker.stop, self.nodes))

    def revive(self) -> bool:
        """Starts the nodes that were launched here and died since; returns whether there was one. Raises CannotRun. Nodes that
        another command stops end one after the other, and none is made out of those that still run."""
        dead = [number for number, node in enumerate(self.nodes, 1) if node.started_here and node.process is None]
        if dead:
            log.error("brokers_died", nodes=dead, what_now="they are started again")
            self.start()
        return bool(dead)

    def _members(self) -> tuple[LocalBroker, ...]:
        """The nodes at the ports that are kept; at new ones where none runs and a foreign program has a port."""
        file = self.data_dir / CLUSTER_FILE
        identity, ports = _kept(file) if file.exists() else (new_cluster_id(), [])
        nodes = self._nodes(identity, ports)
        free = all(tcp.is_free(port) for pair in ports for port in pair)
        if ports and (free or any(node.process for node in nodes)):
            return nodes
        ports = self._new_ports()
        write_atomically(file, json.dumps({"cluster_id": identity, "ports": ports}))
        return self._nodes(identity, ports)

    def _new_ports(self) -> Ports:
        fresh = tcp.free_ports(2 * self.count)
        return list(zip(fresh[::2], fresh[1::2], strict=True))

    def _nodes(self, identity: str, ports: Ports) -> tuple[LocalBroker, ...]:
        controllers = [controller for _, controller in ports]
        return tuple(
            LocalBroker(
                self.data_dir / f"node-{number}",
                ports=pair,
                tls=self.tls,
                more={**member(number, controllers), **self.more},
                cluster_id=identity,
            )
            for number, pair in enumerate(ports, 1)
        )


def kept_count(data_dir: Path) -> int:
    """Returns how many nodes the folder was begun with; 0: no broker was ever started there."""
    if (file := data_dir / CLUSTER_FILE).exists():
        return len(_kept(file)[1])
    return int((data_dir / "ports.json").exists())


def _kept(file: Path) -> tuple[str, Ports]:
    try:
        kept = json.loads(file.read_text())
        return kept["cluster_id"], [(broker, controller) for broker, controller in kept["ports"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise CannotRun(f"{file} is not what was written there: put it back, or begin a new claw home") from None
