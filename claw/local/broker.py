"""The broker that claw talks to: the one that the environment names, else Apache Kafka started here, of
one node or several."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import claw_home
from claw_r1.claw.local import ports as tcp
from claw_r1.claw.local.kafka.cluster import LocalCluster, kept_count
from claw_r1.claw.local.kafka.config import COPIES_MAX
from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.tls.tls_dir import TlsDir, secured_stack
from claw_r1.eventlog.settings import LogSettings

ANSWER_TIMEOUT_S = 8.0


@dataclass
class Broker:
    """A broker that answers. Leaving the `with` block stops it only if this resolution started it."""

    bootstrap: str
    local: LocalBroker | LocalCluster | None = None
    named: str = tcp.BROKER_NAMES[-1]
    """The variable that names it, where it is no local one."""

    @property
    def origin(self) -> str:
        """In a sentence, which broker this is and whose."""
        if self.local is None:
            return f"using the broker at {self.bootstrap}, which {self.named} names"
        state = "started Kafka" if self.local.started_here else "using the Kafka of this claw home, which runs already,"
        return f"{state} at {self.bootstrap} (data is kept in {self.local.data_dir}; `claw broker` opens it again)"

    def look_after(self) -> None:
        """Starts a local one again that has ended, whoever had started it. Raises CannotRun."""
        if self.local is not None:
            self.local.revive()

    def is_away(self) -> bool:
        """Returns whether no server of one that a variable names answers, each tried once; nobody here could
        start it again."""
        if self.local is not None:
            return False
        pairs, probe = tcp.split_servers(self.bootstrap), _probe()
        return not any(probe(*pair, tcp.TRY_S) for pair in pairs)

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        if self.local is not None and self.local.started_here:
            self.local.stop()


def broker_dir(home: Path | None = None) -> Path:
    """Returns the folder where the local broker's data is kept between runs."""
    return (home or claw_home()) / "broker"


def resolve_broker(data_dir: Path | None = None, nodes: int = 0) -> Broker:
    """The broker that a variable names (`ports.BROKER_NAMES`), else the local node of `data_dir`, or its cluster, started when it is
    not up.

    nodes: how many it must have; 0: as many as it has, in a new folder one. With several this process and all that it
    starts make topics of as many copies as they can have, but for what the environment says itself.

    Raises `CannotRun` within 10 s when the named broker does not answer, and when no local one can be started; the
    message names the ways.
    """
    if named := tcp.broker_variable():
        return Broker(check_answers(os.environ[named], named=named), named=named)
    tls = secured_stack()
    kept = broker_dir() if tls is None else broker_dir().with_name("broker-secured")
    return _local(data_dir or kept, nodes, tls)


def _local(folder: Path, nodes: int, tls: TlsDir | None) -> Broker:
    if "," in str(folder.resolve()):  # where Kafka parts a list of folders
        raise CannotRun(
            f"Kafka keeps no data below {folder.resolve()}, which has a comma: name another claw home (CLAW_HOME)"
        )
    if (count := _count(folder, nodes)) == 1:
        node = LocalBroker(folder, tls=tls).start()
        return Broker(node.bootstrap, node)
    os.environ.setdefault("CLAW_LOG_REPLICATION", str(min(COPIES_MAX, count)))
    cluster = LocalCluster(folder, count, tls=tls).start()
    return Broker(cluster.bootstrap, cluster)


def _count(folder: Path, nodes: int) -> int:
    there = kept_count(folder)
    if nodes and there and nodes != there:
        raise CannotRun(
            f"the broker in {folder} was begun with {there} {'node' if there == 1 else 'nodes'}, and its number is not "
            "changed: name another claw home (CLAW_HOME), or leave --nodes out"
        )
    return there or nodes or 1


def check_answers(servers: str, timeout_s: float = ANSWER_TIMEOUT_S, named: str = tcp.BROKER_NAMES[-1]) -> str:
    """`servers`, if a Kafka broker answers at one of them within `timeout_s`. named: the variable. Raises `CannotRun`."""
    try:
        pairs = tcp.split_servers(servers)
    except ValueError as error:
        raise CannotRun(f"{named} is {error}; write host:port,host:port") from None
    if not tcp.any_answers(pairs, timeout_s, _probe()):
        raise CannotRun(
            f"no Kafka broker answers at {servers} ({named}): start it or correct the address, "
            "or unset the variable and claw starts a broker of its own"
        )
    return servers


def _probe() -> Callable[[str, int, float], bool]:
    return tcp.accepts if LogSettings().secured else tcp.kafka_answers
