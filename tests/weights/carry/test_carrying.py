"""Versions that are carried to several hosts at once, over gloo; hosts are folders of copies that know nothing of each other."""

import gc
import json
import random
import socketserver
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode

import pytest
import torch

from claw_r1.claw.tls.authority import Authority
from claw_r1.runtime.files import write_secret
from claw_r1.runtime.processes import child
from claw_r1.runtime.tls.pem import PemFiles
from claw_r1.weights.carry.carrier_handle import CARRIER, Carrier, carried_by
from claw_r1.weights.carry.carrying import Carried, Carrying
from claw_r1.weights.carry.from_carrier import Carriage, FromCarrier
from claw_r1.weights.deadline import Deadline
from claw_r1.weights.errors import DigestMismatch, TransferFailed, WeightsError
from claw_r1.weights.host_copies import HostCopies, HostCopy
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.sources import SECRET_VARIABLE
from claw_r1.weights.transfer_server import TransferServer
from tests.patience import PATIENCE_S, until
from tests.soak import in_soak, only_in_soak
from tests.weights.tensors import Tensors, same, take
from tests.weights.test_host_copies import Memory

pytestmark = [pytest.mark.process, pytest.mark.slow]

SPAWN = partial(child.start_spoken_to, CARRIER)
BUCKET = 1 << 20


def numbered(version: int) -> Tensors:
    return [(f"t{i}", torch.full((1 << 18,), float(version * 100 + i))) for i in range(6)]


class Host:
    """A worker's side: its own copies, and its own carrier."""

    def __init__(self, folder: Path, name: str, url: str, tls: ssl.SSLContext | None = None) -> None:
        self.copies, self.name, self._url, self._tls = HostCopies(folder / name), name, url, tls
        self.carriage = Carriage(("gloo",), SPAWN)

    def take(self, version: int, expected: Tensors) -> HostCopy:
        source = FromCarrier(
            self.carriage, self._url, "run", version, worker_id=self.name, connect_timeout_s=30, tls=self._tls
        )
        return take(self.copies, WeightsSnapshot.of(expected).manifest, source, seconds=120)


@pytest.fixture
def carried() -> list[Carried]:
    return []


@pytest.fixture
def server(carried: list[Carried]) -> Iterator[TransferServer]:
    """A trainer that carries by gloo."""
    carrying = Carrying(("gloo",), SPAWN, bucket_bytes=BUCKET, join_s=300, gather_s=3, on_carried=carried.append)
    server = TransferServer(carrying=carrying)
    yield server
    server.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def hosts(tmp_path: Path, server: TransferServer) -> Iterator[list[Host]]:
    """Two other hosts."""
    hosts = [Host(tmp_path, name, server.url) for name in ("a", "b")]
    yield hosts
    for host in hosts:
        host.carriage.end()


def stage(server: TransferServer, version: int) -> Tensors:
    tensors = numbered(version)
    server.stage("run", version, WeightsSnapshot.of(tensors))
    return tensors


def carried_to(hosts: list[Host], version: int, expected: Tensors, threads: ThreadPoolExecutor) -> list[HostCopy]:
    """Both ask at the same time. The kernel ends a carrier with the thread that started it, so the threads stay."""
    return [future.result() for future in [threads.submit(host.take, version, expected) for host in hosts]]


def test_a_carrier_that_ended_leaves_no_pipe_to_whoever_still_holds_it() -> None:
    """Two descriptors of each that was killed stayed until garbage was looked for. Who waits for its word hears of the end."""
    gc.collect()  # what earlier tests left may be closed at any moment
    before = pipes()
    carrier = Carrier(lambda _: subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE), "gloo")
    carrier.order("loaded", 1)
    assert carrier.expect("loaded", Deadline(PATIENCE_S)) == ["1"]
    with ThreadPoolExecutor(1) as pool:
        word = pool.submit(carrier.hear, Deadline(PATIENCE_S))
        carrier.end()
        with pytest.raises(TransferFailed, match="ended"):
            word.result()
    until(lambda: pipes() <= before, "no pipe")
    for use in (lambda: carrier.order("carry"), lambda: carrier.hear(Deadline(PATIENCE_S))):
        with pytest.raises(TransferFailed):
            use()


def pipes() -> int:
    """Those of this process that are open."""
    count = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the folder itself
            count += str(path.readlink()).startswith("pipe:")
    return count


def test_hosts_that_ask_together_are_one_group_from_version_to_version(
    server: TransferServer, hosts: list[Host], carried: list[Carried], threads: ThreadPoolExecutor
) -> None:
    """Each has the bytes of the digest; the versions after the first start no process."""
    seen = set()
    for version in (1, 2, 3):
        expected = stage(server, version)
        copies = carried_to(hosts, version, expected, threads)
        assert all(same(copy, expected) for copy in copies)
        seen.add(tuple((host.carriage.group, host.carriage.carrier and host.carriage.carrier.pid) for host in hosts))
    ((a, b),) = seen
    assert a[0] == b[0] != ""
    until(lambda: len(carried) == 3, "what was carried is told once its workers have it")
    assert [(sorted(one.workers), one.error) for one in carried] == [(["a", "b"], None)] * 3


def test_other_bytes_under_the_digest_get_no_name(
    server: TransferServer, hosts: list[Host], threads: ThreadPoolExecutor
) -> None:
    """Each host finds it out for itself, no file has the promised name, and the next version is carried to the same group."""
    expected, promised = numbered(1), Future[str]()
    promised.set_result(WeightsSnapshot.of(expected).manifest.digest)
    other = WeightsSnapshot.of(numbered(2))
    other.flat()
    server.stage("run", 1, replace(other, digest=promised))
    for future in [threads.submit(host.take, 1, expected) for host in hosts]:
        assert isinstance(future.exception(), DigestMismatch)
    assert [path.name for host in hosts for path in host.copies.directory.iterdir()] == []
    group = hosts[0].carriage.group
    expected = stage(server, 3)
    assert all(same(copy, expected) for copy in carried_to(hosts, 3, expected, threads))
    assert hosts[0].carriage.group == group == hosts[1].carriage.group != ""


@only_in_soak
def test_places_are_asked_for_by_tls_where_offers_are(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    """Two workers of the authority are carried to, version after version; one of another authority is told nothing."""
    authority, other = Authority.new(), Authority.new()
    for name, issuer in (("own", authority), ("other", other)):
        (tmp_path / f"{name}-ca.pem").write_text(issuer.pem)
        write_secret(tmp_path / f"{name}.pem", issuer.issue("localhost", names=("localhost",)))
    own, strange = (PemFiles(tmp_path / "own-ca.pem", tmp_path / f"{name}.pem", None) for name in ("own", "other"))
    heard: list[Carried] = []
    carrying = Carrying(("gloo",), SPAWN, bucket_bytes=BUCKET, join_s=300, on_carried=heard.append)
    server = TransferServer(carrying=carrying, tls=own.context(server=True))
    hosts = [Host(tmp_path, name, server.url, own.context()) for name in ("a", "b")]
    stranger = Host(tmp_path, "c", server.url, strange.context())
    for version in (1, 2):
        expected = stage(server, version)
        with pytest.raises(TransferFailed):
            stranger.take(version, expected)
        assert all(same(copy, expected) for copy in carried_to(hosts, version, expected, threads))
    until(lambda: len(heard) == 2)
    assert [(sorted(one.workers), one.error) for one in heard] == [(["a", "b"], None)] * 2
    for host in (*hosts, stranger):
        host.carriage.close()
    server.close()


def asked(server: TransferServer, content: str, **query: str) -> tuple[int, str]:
    """Status and words of an answer to `POST /carry`."""
    fields = {"run_id": "run", "version": "1", "digest": content, "worker": "w", "transports": "gloo", **query}
    url = server.url.replace("/weights", f"/carry?{urlencode(fields)}")
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=PATIENCE_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def test_who_asks_for_what_is_not_carried_is_told_why(server: TransferServer) -> None:
    """Another version, other transports, a trainer that carries nothing: each is a refusal in words, and starts no process."""
    digest = WeightsSnapshot.of(stage(server, 1)).manifest.digest
    assert asked(server, digest, version="2")[0] == 404
    assert asked(server, digest, transports="nccl,http") == (501, '{"error":"carried by gloo only"}')
    assert asked(server, digest, digest="")[0] == 400
    server.carrying = None
    status, why = asked(server, digest)
    assert status == 501
    assert "offer_transports" in why


def test_nothing_is_carried_to_who_lacks_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same secret as for HTTP."""
    monkeypatch.setenv(SECRET_VARIABLE, "s")
    server = TransferServer(carrying=Carrying(("gloo",), SPAWN))
    digest = WeightsSnapshot.of(stage(server, 1)).manifest.digest
    assert asked(server, digest)[0] == 401
    server.close()


def test_a_carrier_that_never_starts_is_an_answer_in_words(tmp_path: Path) -> None:
    """A trainer without room for a process ends the request early, which sends the worker to HTTP."""

    def refuse(_: str) -> "subprocess.Popen[bytes]":
        raise OSError("no more processes")

    heard: list[Carried] = []
    server = TransferServer(carrying=Carrying(("gloo",), refuse, on_carried=heard.append))
    expected = stage(server, 1)
    with pytest.raises(TransferFailed):
        Host(tmp_path, "a", server.url).take(1, expected)
    until(lambda: heard)
    assert heard[0].error == "no more processes"
    server.close()


def test_only_what_a_processor_has_is_carried_by() -> None:
    """HTTP needs no carrier, and what stands behind it is not asked for; NCCL needs a GPU, which is not looked for without it."""

    def fail() -> bool:
        raise AssertionError

    assert carried_by(("nccl", "gloo", "http"), lambda: True) == ("gloo",)
    assert carried_by(("nccl", "gloo", "http"), lambda: False) == ("nccl", "gloo")
    assert carried_by(("gloo", "http"), fail) == ("gloo",)
    assert carried_by(("http", "nccl", "gloo"), fail) == ()


class LyingTrainer(BaseHTTPRequestHandler):
    """Answers every request for a place with the line of its server, and keeps the request open."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.line + b"\n")  # type: ignore[attr-defined]  # of `lying`
        self.wfile.flush()
        self.rfile.read(1)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[int]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def lying(line: bytes) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), LyingTrainer)
    server.daemon_threads, server.line = True, line  # type: ignore[attr-defined]  # as above
    with serving(server) as port:
        yield f"http://127.0.0.1:{port}/weights"


class Nonsense(socketserver.BaseRequestHandler):
    """A store that speaks, and says nothing that anybody understands."""

    def handle(self) -> None:
        self.request.sendall(random.Random(1).randbytes(4096))
        self.request.recv(1)


class Deaf(socketserver.BaseRequestHandler):
    """A store that never says a word."""

    def handle(self) -> None:
        self.request.recv(1 << 20)
        time.sleep(60)


class Gone(socketserver.BaseRequestHandler):
    """A store that hangs up."""


@pytest.mark.parametrize("store", [Nonsense, in_soak(Deaf), in_soak(Gone)])
def test_a_store_that_answers_nonsense_gives_nothing_and_is_left_at_once(
    tmp_path: Path, store: type[socketserver.BaseRequestHandler]
) -> None:
    """The worker's time ends when the store has been asked: no copy gets the digest's name, the carrier is ended, and another source gives
    the version right after."""
    tensors = numbered(1)
    manifest = WeightsSnapshot.of(tensors).manifest
    asked, deadline = threading.Event(), Deadline(PATIENCE_S)

    class Asked(store):  # type: ignore[misc, valid-type]  # a parameter
        def handle(self) -> None:
            asked.set()
            super().handle()

    def end() -> None:
        asked.wait()
        deadline.cancel()

    threading.Thread(target=end, daemon=True).start()
    stores = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Asked)
    stores.daemon_threads = True
    with serving(stores) as port:
        seat = {"group": "g", "transport": "gloo", "rank": 1, "world": 2, "host": "127.0.0.1", "port": port}
        with lying(json.dumps({**seat, "bucket": BUCKET}).encode()) as url:
            host = Host(tmp_path, "a", url)
            source = FromCarrier(host.carriage, url, "run", 1, worker_id="a", connect_timeout_s=30)
            with pytest.raises(WeightsError):
                host.copies.take(manifest, source, deadline)
    assert asked.is_set()
    assert source.is_blamed
    assert host.carriage.carrier is None
    assert not list(host.copies.directory.glob(f"{manifest.digest}*"))
    assert same(take(host.copies, manifest, Memory(tensors)), tensors)
    host.carriage.close()


@pytest.mark.parametrize("line", [b"", b"nonsense", b"{}", b"[1]", b'{"group": 1, "transport": "x", "bucket": "y"}'])
def test_a_place_that_is_none_is_refused_in_words(tmp_path: Path, line: bytes) -> None:
    """Whatever a trainer says, its worker hears of it as of any failed transfer."""
    tensors = numbered(1)
    with lying(line) as url:
        host = Host(tmp_path, "a", url)
        with pytest.raises(TransferFailed):
            host.take(1, tensors)
    assert host.carriage.group == ""
    host.carriage.close()
