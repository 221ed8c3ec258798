"""An Apache Kafka node on this machine, without a container.

It belongs to its data directory: the ports, the cluster id and the process's identity are kept there. So a node that
another command runs is found and used, a dead one is started on what it had acknowledged, and two commands that start at
once get one node.
"""

import base64
import hashlib
import json
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local import ports as tcp
from claw_r1.claw.local.jars import kafka_jars
from claw_r1.claw.local.java import find_java
from claw_r1.claw.local.kafka.config import LOG4J, MECHANISM, java_command, server_properties
from claw_r1.claw.tls.tls_dir import USER, TlsDir
from claw_r1.eventlog.locks import exclusive
from claw_r1.runtime.files import write_atomically, write_secret
from claw_r1.runtime.processes.child import POLL_S, start
from claw_r1.runtime.processes.die_with_parent import dying_with_parent
from claw_r1.runtime.processes.process_identity import ProcessId

log = structlog.get_logger()

START_TIMEOUT_S = 90.0  # a restart after kill -9 looks through every partition: 6 s for tens of them, 40 s for 3,000
STOP_TIMEOUT_S = 10.0
HEAP_MIB = 512
FORMAT_HEAP_MIB = 128
LOG_TAIL_LINES = 3


@dataclass
class LocalBroker:
    """One Kafka node on loopback, in `data_dir`. `ports` (broker, controller) are chosen and kept when not given.

    The node ends with the thread that started it, even on kill -9.
    """

    data_dir: Path
    ports: tuple[int, int] | None = None
    tls: TlsDir | None = None
    """The files of a node that takes clients by TLS and password only."""
    more: Mapping[str, str] = field(default_factory=dict)
    """More of Kafka's own settings."""
    cluster_id: str = field(default_factory=lambda: new_cluster_id())
    """The cluster that a new data directory belongs to."""
    started_here: bool = field(default=False, init=False)
    """The node was launched by `start`, rather than found alive."""
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients, once started."""
        return f"127.0.0.1:{self._kept_ports()[0]}"

    @property
    def process(self) -> ProcessId | None:
        """The node's process while it lives, whoever started it."""
        return ProcessId.load(self.data_dir / "process.json")

    def start(self) -> "LocalBroker":
        """Returns when the node answers. Raises `CannotRun`: no Java, no jars, a port in use, the node ended (with its last words)."""
        self.data_dir = self.data_dir.resolve()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.check_password()
        with exclusive(self.data_dir / "start.lock"):  # the second starter finds the first one's node
            process = self.process
            if process is None or not self._answers(process):  # one that is being stopped ends without answering
                process = self.launch()
                self.await_answer(process)
        log.info("broker_ready", bootstrap=self.bootstrap, pid=process.pid, reused=not self.started_here)
        return self

    def check_password(self) -> None:
        """Raises `CannotRun` where Kafka was begun with another password, which is the only one that it knows."""
        record = self._password_record
        if self.tls and (self.data_dir / "data").exists() and record.exists() and record.read_text() != self._digest():
            raise CannotRun(
                f"the Kafka in {self.data_dir} was begun with another password than {self.tls.password.resolve()} holds: put the "
                f"{USER}.password with which it was begun there (it stands in {self.data_dir / 'server.properties'}, too), or name "
                f"another claw home (CLAW_HOME); where you changed it in Kafka itself, remove {record}"
            )

    @property
    def _password_record(self) -> Path:
        return self.data_dir / "password.sha256"

    @property
    def _format_secret(self) -> Path:
        return self.data_dir / "format.arguments"

    def _digest(self) -> str:
        """Returns the digest of the stack's password; empty without one."""
        return hashlib.sha256(self.tls.password.read_text().strip().encode()).hexdigest() if self.tls else ""

    def await_answer(self, process: ProcessId) -> None:
        """Returns when the node answers clients. Raises `CannotRun` with its last words."""
        if not self._answers(process):
            raise CannotRun(f"Kafka ended while starting: {self._last_words()}")

    def stop(self) -> None:
        """Stops the node, whoever started it: gracefully, after 10 s by force."""
        if process := self.process:
            process.stop(STOP_TIMEOUT_S)
        self._reap()

    def kill(self) -> None:
        """SIGKILL: what was acknowledged must survive this."""
        if process := self.process:
            process.signal(signal.SIGKILL)
            process.wait(STOP_TIMEOUT_S)
        self._reap()

    def revive(self) -> bool:
        """Starts a node that has ended since `start`, on what it had acknowledged; returns whether it had to. One that was found
        ends with the command that started it, however many others use it. Raises CannotRun."""
        if self.process is not None:
            return False
        log.error("broker_died", what_now="it is started again", last_words=self._last_words())
        self.start()
        return True

    def _reap(self) -> None:
        if self._child is not None:
            self._child.poll()

    def __enter__(self) -> "LocalBroker":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.started_here:
            self.stop()

    def launch(self) -> ProcessId:
        """Starts the process, which need not answer yet. Raises `CannotRun`."""
        self._reap()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        java, jars = find_java(), kafka_jars()
        broker_port, controller_port = self._choose_ports()
        write_atomically(self.data_dir / "log4j2.yaml", LOG4J)
        try:
            self._format(java, jars, broker_port, controller_port)
        finally:
            self._format_secret.unlink(missing_ok=True)
        properties = self.data_dir / "server.properties"
        write_secret(properties, self._properties(self.data_dir / "data", broker_port, controller_port))
        command = self._java(java, jars, HEAP_MIB, "kafka.Kafka", str(properties))
        with (self.data_dir / "broker.log").open("ab") as output:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            self._child = start(command, death_signal=signal.SIGTERM, **streams)
        process = ProcessId.of(self._child.pid)
        if process is None:
            raise CannotRun(f"Kafka did not start: {self._last_words()}")
        process.save(self.data_dir / "process.json")
        self.started_here = True
        return process

    def _choose_ports(self) -> tuple[int, int]:
        if self.ports:
            if in_use := [port for port in self.ports if not tcp.is_free(port)]:
                raise CannotRun(
                    f"port {in_use[0]} is in use by another program: choose another port for the broker, or none"
                )
            chosen = self.ports
        else:
            chosen = self._kept_ports() if (self.data_dir / "ports.json").exists() else _new_ports()
            if not all(tcp.is_free(port) for port in chosen):
                log.warning("kept_ports_taken", ports=chosen)  # by a foreign program, since our node is dead
                chosen = _new_ports()
        write_atomically(self.data_dir / "ports.json", json.dumps(chosen))
        return chosen

    def _kept_ports(self) -> tuple[int, int]:
        try:
            broker_port, controller_port = json.loads((self.data_dir / "ports.json").read_text())
        except (OSError, ValueError):
            raise CannotRun(f"no broker was ever started in {self.data_dir}") from None
        return int(broker_port), int(controller_port)

    def _format(self, java: Path, jars: Path, broker_port: int, controller_port: int) -> None:
        """Kafka's own format of a new data directory, under another name until it is whole."""
        data, unfinished = self.data_dir / "data", self.data_dir / "data.unfinished"
        if data.exists():
            return
        shutil.rmtree(unfinished, ignore_errors=True)  # a killed start's, of another cluster: refused for ever
        properties = self.data_dir / "format.properties"
        write_secret(properties, self._properties(unfinished, broker_port, controller_port))
        arguments = [
            *("kafka.tools.StorageTool", "format", "--ignore-formatted"),
            *(f"--cluster-id={self.cluster_id}", "-c", str(properties)),
        ]
        if self.tls:
            user = f"{MECHANISM}=[name={USER},password={self.tls.password.read_text().strip()}]"
            # In a file, an argument a line: everybody sees a command line.
            write_secret(self._format_secret, f"--add-scram\n{user}\n")
            arguments.append(f"@{self._format_secret}")
            write_secret(self._password_record, self._digest())
        command = dying_with_parent(self._java(java, jars, FORMAT_HEAP_MIB, *arguments), signal.SIGKILL)
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        if finished.returncode:
            raise CannotRun(f"Kafka cannot format {data}: {_reason(finished.stderr or finished.stdout)}")
        unfinished.rename(data)

    def _properties(self, log_dir: Path, broker_port: int, controller_port: int) -> str:
        return server_properties(log_dir, broker_port, controller_port, self.tls, self.more)

    def _java(self, java: Path, jars: Path, heap_mib: int, *arguments: str) -> list[str]:
        return java_command(java, jars, self.data_dir / "log4j2.yaml", heap_mib, list(arguments))

    def _answers(self, process: ProcessId) -> bool:
        """Waits until the node answers; False when it ends instead."""
        port = self._kept_ports()[0]
        deadline = time.monotonic() + START_TIMEOUT_S
        answers = tcp.accepts if self.tls else tcp.kafka_answers
        while not answers("127.0.0.1", port):
            if not process.alive:
                return False
            if time.monotonic() > deadline:
                raise CannotRun(
                    f"Kafka (pid {process.pid}) does not answer on port {port} after {START_TIMEOUT_S:.0f} s: {self._last_words()}"
                )
            time.sleep(POLL_S)
        return True

    def _last_words(self) -> str:
        path = self.data_dir / "broker.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return " | ".join(lines[-LOG_TAIL_LINES:]) + f" (all of it: {path})"


def _reason(output: str) -> str:
    """Returns the line that names the error: those below it say where in Kafka it was raised."""
    lines = output.strip().splitlines()
    return next((line for line in lines if "Exception" in line), " ".join(lines[-1:]))


def new_cluster_id() -> str:
    """A fresh id as Kafka writes it: 22 characters of base64url, not beginning with a dash, as Kafka's own never do."""
    while (cluster_id := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return cluster_id


def _new_ports() -> tuple[int, int]:
    broker_port, controller_port = tcp.free_ports(2)
    return broker_port, controller_port
