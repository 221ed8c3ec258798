"""On a Kafka that takes clients by TLS and password only, each room does its work with a user of its own and no more, through
changes of everything that such a wire is made of."""

import asyncio
import base64
import contextlib
import http.client
import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from claw_r1.claw.local import stack
from claw_r1.claw.local.ports import free_ports
from claw_r1.claw.show.doctor.access import access_findings
from claw_r1.eventlog.errors import AccessRefused
from claw_r1.eventlog.grants import ROLES, Grant, grants
from claw_r1.eventlog.kafka.acls import allow, check_access
from claw_r1.eventlog.kafka.admin import check_broker
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.kafka.transactions import TransactionalProducer
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing, readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.rollout import worker_name
from claw_r1.runtime.files import write_secret
from claw_r1.schemas.events import StepCurated
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import BATCHES, CALLS, GROUPS, REWARDS, STEPS, TOPICS, WORKERS, Topic
from tests import children
from tests.gateway.engine import ScriptedEngine
from tests.gateway.processes import Agents, Found, GatewayProcess
from tests.gateway.speaking import answer
from tests.patience import PATIENCE_S, until
from tests.secured_site import SecuredSite, environment
from tests.soak import only_in_soak
from tests.streams.pool import WorkerProcess
from tests.tls_server import listening

SOON = {"connect_timeout_s": 1.0}
"""For what is refused: nobody waits for a broker that answers otherwise."""
pytestmark = [pytest.mark.kafka, pytest.mark.process]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSite]:
    started = SecuredSite.at(tmp_path_factory.mktemp("secured"))
    yield started
    started.broker.stop()


@pytest.fixture
def log(site: SecuredSite) -> LogSettings:
    """The stack's own user on a log with all its topics."""
    return site.new_log()


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine() as scripted:
        scripted.default = answer
        yield scripted


def variables(log: LogSettings) -> dict[str, str]:
    place = {"KAFKA_BOOTSTRAP_SERVERS": log.bootstrap_servers, "CLAW_LOG_PREFIX": log.prefix}
    short = {"CLAW_LOG_CONNECT_TIMEOUT_S": str(log.connect_timeout_s)}
    return {**environment(log), **place, **short, "CLAW_LOG_PARTITIONS": str(log.partitions)}


def run(log: LogSettings, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A program of ours to its end, on this log."""
    argv = [sys.executable, "-m", *arguments]
    env = {**os.environ, **variables(log)}
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=env)


@contextlib.contextmanager
def running(log: LogSettings, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A program of ours while the block lasts, which it ends in order."""
    process = children.start([sys.executable, "-m", *arguments], env={**os.environ, **variables(log)})
    try:
        yield process
    finally:
        ended = children.end(process)
    assert ended == 0


def ask(url: str) -> JsonDict:
    """The answer of a gateway or of a page, to whoever needs no key."""
    with httpx.Client(timeout=PATIENCE_S) as client:
        client.get(httpx.URL(url).join("/api/v1/session"))  # a page's cookie; a gateway has no such path
        answered: JsonDict = client.get(url).raise_for_status().json()
        return answered


def last_line(finished: "subprocess.CompletedProcess[str]") -> str:
    assert finished.returncode == 2, (finished.stdout, finished.stderr)
    return finished.stderr.strip().splitlines()[-1]


def test_the_doctor_reads_the_access_lists(log: LogSettings) -> None:
    """A role's user that lacks a grant is an error, what everybody may do is a warning."""
    needed = grants(log.catalogue(), "export")
    less = [grant for grant in needed if grant.operation != "read"]
    allow(log, {"claw-export": less, "*": [Grant("topic", log.prefix, "read", prefixed=True)]})
    states = {finding.check: finding.severity for finding in access_findings(log)}
    assert states == {"access": "ok", "grants": "error"}
    allow(log, {"claw-export": needed})
    assert [finding.says for finding in access_findings(log) if finding.severity == "warning"] == [
        f"1 too wide, such as *: read topic {log.prefix}*"
    ]


def test_the_doctor_of_a_user_who_may_not_look_says_so(site: SecuredSite, log: LogSettings) -> None:
    """What the operator needs is an error, the lists are not known, and neither ends the other."""
    states = {finding.check: finding.severity for finding in access_findings(site.of_role(log, "gateway"))}
    assert states == {"access": "error", "grants": "warning"}


async def test_each_room_works_with_a_user_of_its_own(
    site: SecuredSite, log: LogSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """Calls are captured, folded, scored, exported and shown, each by who may do that and nothing else."""
    gateway_log, streams_log, quality_log, page_log = (
        site.of_role(log, role) for role in ("gateway", "streams", "quality", "dashboard")
    )
    gateway = GatewayProcess(gateway_log, tmp_path, "--upstream", engine.url, **environment(gateway_log))
    streams = WorkerProcess(streams_log, tmp_path / "streams.log", **environment(streams_log))
    try:
        agents = Agents(gateway.url)
        load = asyncio.create_task(agents.run(4))
        (port,) = free_ports(1)
        scorer = running(quality_log, "claw_r1.consumers.quality", "--scorer", "length")
        page = running(page_log, "claw_r1.consumers.dashboard", "--port", str(port))
        with scorer, page:
            await asyncio.to_thread(until, lambda: list(read_topics(log, [GROUPS])), "the pool has groups")
            await asyncio.to_thread(until, lambda: list(read_topics(log, [REWARDS])), "calls are scored")
            await asyncio.to_thread(until, stack.answers(f"http://127.0.0.1:{port}/live"), "the dashboard follows")
            agents.stopping = True
            await load
            order = await asyncio.to_thread(ask, f"{gateway.url}/orders/x")
            topics = await asyncio.to_thread(ask, f"http://127.0.0.1:{port}/api/v1/operations/topics")
    finally:
        ended = (gateway.stop(), streams.stop())
    assert (agents.errors, ended, order) == ([], (0, 0), {"next_ordinal": 0})
    assert len(topics["topics"]) == len(TOPICS)
    Found.of(log).check(agents)
    exported = run(site.of_role(log, "export"), "claw_r1.claw.cli", "export", "--out", str(tmp_path / "data"))
    assert exported.returncode == 0, exported.stderr


def test_trainer_and_worker_write_as_themselves(site: SecuredSite, log: LogSettings, tmp_path: Path) -> None:
    """A run's transactional id belongs to the trainer, reports of workers to rollout, who reads them when it starts again."""
    trainer, rollout = site.of_role(log, "trainer"), site.of_role(log, "rollout")
    check_access(trainer, "trainer")
    check_access(rollout, "rollout")
    row = Outgoing(topic=BATCHES, key=b"r", value=b"v", partition=0)
    with contextlib.closing(TransactionalProducer(trainer, f"{log.prefix}.trainer.r")) as producer:
        producer.open()
        assert producer.commit([row])
    thief = contextlib.closing(TransactionalProducer(rollout, f"{log.prefix}.trainer.r"))
    with thief as producer, pytest.raises(AccessRefused, match=r"transactional id .*\.trainer\.r"):
        producer.open()
    with contextlib.closing(EventProducer(rollout)) as reports:
        own = partition_of(b"w", log.partitions)
        assert reports.produce(Outgoing(topic=WORKERS, key=b"w", value=b"v", partition=own)).result()
        with pytest.raises(AccessRefused, match=r"training\.batches"):
            reports.produce(row).result()
    worker_name.claim("w", KafkaLog(rollout), log.prefix, tmp_path).lock.close()


def test_an_operator_rebuilds_once_it_may_write_the_generation(site: SecuredSite, log: LogSettings) -> None:
    """A generation's topics are its own: without their lists the refusal says which command writes them."""
    operator = site.of_role(log, "operator")
    said = last_line(run(operator, "claw_r1.claw.cli", "rebuild"))
    assert f"claw topics acls --generation 2 --prefix {log.prefix} --apply" in said
    both = "--generation 1 --generation 2"
    assert f"manifests --kind KafkaUser {both} --prefix {log.prefix}" in said
    following = log.model_copy(update={"generation": 2})
    allow(log, {operator.security_username: grants(following.catalogue(), "operator")})
    rebuilt = run(operator, "claw_r1.claw.cli", "rebuild", "--json")
    assert json.loads(rebuilt.stdout)["manifest"]["generation"] == 2, rebuilt.stderr


def test_a_session_that_is_dropped_in_a_transaction_loses_and_doubles_nothing(log: LogSettings) -> None:
    """What stands between client and broker ends every connection while a commit is under way; each that returned is there once."""
    port, dropped = int(log.bootstrap_servers.rpartition(":")[2]), list[int]()

    class Cut(list[Outgoing]):
        """Rows of which the middle one ends every connection, the first time that it is written."""

        def __iter__(self) -> Iterator[Outgoing]:
            for index, item in enumerate(super().__iter__()):
                if index == len(self) // 2 and not self.is_cut:
                    self.is_cut = True
                    dropped.append(drop_connections(port))
                yield item

        is_cut = False

    batches = [
        Cut(Outgoing(topic=BATCHES, key=b"%d" % n, value=os.urandom(20_000), partition=0) for n in range(99))
        for _ in range(3)
    ]
    with contextlib.closing(TransactionalProducer(log, f"{log.prefix}.trainer.dropped")) as producer:
        producer.open()
        for batch in batches:
            producer.commit(batch)
    assert len(dropped) == len(batches)
    assert all(dropped)
    assert [record.value for record in read_topics(log, [BATCHES])] == [
        item.value for batch in batches for item in batch
    ]


def test_a_session_that_is_dropped_while_hands_are_shaken_is_no_refusal(log: LogSettings) -> None:
    """A broker that begins again drops those who come; nobody is told that a password is wrong."""
    port, over = int(log.bootstrap_servers.rpartition(":")[2]), threading.Event()

    def drop() -> None:
        while not over.wait(0.005):
            drop_connections(port)

    dropper = threading.Thread(target=drop)
    dropper.start()
    threading.Timer(2.0, over.set).start()
    try:
        assert check_broker(log).brokers
    finally:
        over.set()
        dropper.join()


def drop_connections(port: int) -> int:
    """Ends what this process has open to a port of this machine, in the middle of whatever passes; returns how many."""
    dropped = 0
    for entry in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):  # closed meanwhile, or no connection
            if stat.S_ISSOCK(os.fstat(int(entry.name)).st_mode):
                with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                    if connection.family != socket.AF_UNIX and connection.getpeername()[1] == port:
                        connection.shutdown(socket.SHUT_RDWR)
                        dropped += 1
    return dropped


@pytest.mark.parametrize("role", ROLES)
def test_a_topic_less_is_named_before_anything_begins(site: SecuredSite, log: LogSettings, role: str) -> None:
    """For each role, its last reading and its last writing is taken away."""
    needed = [grant for grant in grants(log.catalogue(), role) if grant.resource == "topic"]
    for operation in ("read", "write"):
        taken = next((grant for grant in reversed(needed) if grant.operation == operation), None)
        if taken is not None:
            with pytest.raises(AccessRefused) as refused:
                check_access(site.of_role(log, role, but=taken), role)
            assert str(taken) in str(refused.value)


@pytest.mark.parametrize(
    ("role", "resource", "program", "words"),
    [
        ("streams", "group", ["claw_r1.streams"], "may not use group"),
        ("streams", "transactional_id", ["claw_r1.streams"], "transactional id"),
        ("quality", "group", ["claw_r1.consumers.quality", "--scorer", "length"], "consumer group"),
    ],
)
def test_without_its_group_or_its_fence_a_room_ends(
    site: SecuredSite, log: LogSettings, role: str, resource: str, program: list[str], words: str
) -> None:
    taken = next(grant for grant in reversed(grants(log.catalogue(), role)) if grant.resource == resource)
    said = last_line(run(site.of_role(log, role, but=taken), *program))
    assert words in said
    assert "claw topics acls" in said


def test_a_wrong_password_is_one_line(site: SecuredSite, log: LogSettings, tmp_path: Path) -> None:
    wrong = site.of_role(log, "gateway")
    write_secret(tmp_path / "wrong", "guess")
    for program in ("claw_r1.gateway", "claw_r1.streams"):
        said = last_line(run(wrong.model_copy(update={"security_password_file": tmp_path / "wrong", **SOON}), program))
        assert "Authentication failed" in said
        assert "guess" not in said


@pytest.mark.parametrize(
    ("host", "begins", "lasts", "reason"),
    [
        ("localhost", timedelta(days=-2), timedelta(days=1), "certificate has expired"),
        ("localhost", timedelta(hours=1), timedelta(days=1), "certificate is not yet valid"),
        ("elsewhere", timedelta(0), timedelta(days=1), "Hostname mismatch"),
    ],
)
def test_a_broker_that_proves_nothing_is_one_line(
    site: SecuredSite, log: LogSettings, tmp_path: Path, host: str, begins: timedelta, lasts: timedelta, reason: str
) -> None:
    """Expired, an hour too early, of another host: said in OpenSSL's words, and no password goes there."""
    write_secret(tmp_path / "server.pem", site.former.issue(host, names=(host,), begins=begins, lasts=lasts))
    impostor = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    impostor.load_cert_chain(tmp_path / "server.pem")
    with listening(impostor) as port, pytest.raises(AccessRefused, match=reason):
        check_broker(log.model_copy(update={"bootstrap_servers": f"localhost:{port}"}))


def known(log: LogSettings, topic: Topic) -> int:
    """The steps of the pool, or the calls that have a score: each once."""
    records = read_topics(log, [topic])
    if topic is STEPS:
        return len({record.key for record in records})
    return len({event.call_id for event in readable(records) if isinstance(event, StepCurated)})


def token(log: LogSettings, folder: Path) -> LogSettings:
    """The same log for who shows the token of the streams' user, from a file."""
    claims = {"sub": f"{log.prefix}-streams", "iat": int(time.time()) - 5, "exp": int(time.time()) + 600}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)
    ]
    write_secret(folder / "token", f"{'.'.join(parts)}.")
    shown = {"security_mechanism": "OAUTHBEARER", "security_token_file": folder / "token"}
    return log.model_copy(update={**shown, "security_username": "", "security_password_file": None})


def test_a_token_opens_the_log(log: LogSettings, tmp_path: Path) -> None:
    """OAUTHBEARER by a file, or by a program that prints it."""
    by_file = token(log, tmp_path)
    by_command = {"security_token_command": f"cat {tmp_path / 'token'}", "security_token_file": None}
    assert check_broker(by_file) == check_broker(by_file.model_copy(update=by_command))


@only_in_soak
def test_a_token_opens_the_pool(site: SecuredSite, log: LogSettings, tmp_path: Path) -> None:
    """Faust's client shows it as ours do."""
    site.of_role(log, "streams")  # the role's grants, for the user of the token
    shown = token(log, tmp_path)
    worker = WorkerProcess(shown, tmp_path / "streams.log", **environment(shown))
    try:
        until(lambda: worker.said("streams_assigned") or not worker.running)
        assert worker.running, worker.log()
    finally:
        ended = worker.stop()
    assert ended == 0


def test_the_gateways_door_shows_a_renewed_certificate(
    site: SecuredSite, log: LogSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """Connections that come after it see the new one, and no connection before it is cut."""
    own = tmp_path / "door.pem"
    write_secret(own, site.former.issue("door", names=("localhost",)))
    door = {**environment(log), "CLAW_GATEWAY_TLS_CERTIFICATE_FILE": str(own)}
    trusting = ssl.create_default_context(cadata=site.former.pem)
    gateway = GatewayProcess(log, tmp_path, "--upstream", engine.url, **door)
    try:
        first = http.client.HTTPSConnection("localhost", gateway.port, context=trusting)
        serials = []
        for _ in range(2):
            first.request("GET", "/readyz")
            assert first.getresponse().read().startswith(b'{"ready":true')
            other = http.client.HTTPSConnection("localhost", gateway.port, context=trusting)
            other.connect()
            serials.append(other.sock.getpeercert()["serialNumber"])
            other.close()
            write_secret(own, site.former.issue("door", names=("localhost",)))
        first.close()
    finally:
        ended = gateway.stop()
    assert (gateway.url[:8], serials[0] != serials[1], ended) == ("https://", True, 0)


def test_kafkas_own_tools_use_the_same_access(log: LogSettings) -> None:
    listed = run(log, "claw_r1.claw.cli", "broker", "tool", "topics", "--list")
    assert log.catalogue().name(CALLS) in listed.stdout, listed.stderr


@only_in_soak
async def test_certificates_and_passwords_change_under_load(
    site: SecuredSite, log: LogSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """Every reply is in the log, and each fact is folded once, though the clients' authority and passwords change while agents call and
    the broker is killed and comes back believing the new authority only."""
    logs = {role: site.of_role(log, role) for role in ("gateway", "streams", "quality")}
    gateway = GatewayProcess(logs["gateway"], tmp_path, "--upstream", engine.url, **environment(logs["gateway"]))
    streams = WorkerProcess(logs["streams"], tmp_path / "streams.log", **environment(logs["streams"]))
    scorer = running(logs["quality"], "claw_r1.consumers.quality", "--scorer", "length")
    agents = Agents(gateway.url)
    load = asyncio.create_task(agents.run(4))
    try:
        with scorer:
            await asyncio.to_thread(until, lambda: list(read_topics(log, [REWARDS])), "calls are scored")
            await asyncio.to_thread(until, lambda: list(read_topics(log, [GROUPS])), "the pool has groups")
            for each in logs.values():
                user = each.security_username
                site.let_in(log, user, f"another for {user}")
                site.log(user, issuer=site.latter)
                write_secret(site.folder / user / "password", f"another for {user}")
            site.log("claw", issuer=site.latter)
            read = "tls_files_read_again"
            await asyncio.to_thread(until, lambda: read in gateway.said, "the gateway reads the new files")
            await asyncio.to_thread(until, lambda: len(streams.said("streams_assigned")) == 2, "streams begin again")
            before = len(agents.replied)
            await asyncio.to_thread(site.broker.kill)
            site.trust(site.latter, issuer=site.latter)
            await asyncio.to_thread(site.broker.start)
            await asyncio.to_thread(until, lambda: len(agents.replied) > before + 50, "calls go on")
            agents.stopping = True
            await load
            calls = len(agents.replied)
            await asyncio.to_thread(until, lambda: known(log, STEPS) >= calls, "all is folded")
            await asyncio.to_thread(until, lambda: known(log, REWARDS) >= calls, "all is scored")
    finally:
        agents.stopping = True
        ended = (gateway.stop(), streams.stop())
        site.trust(site.former, site.latter, issuer=site.latter)
    assert agents.errors == []
    assert ended == (0, 0)
    Found.of(log).check(agents, duplicates=True)
