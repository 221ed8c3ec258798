"""Transfers over the loopback interface, from a server in this process or in another one."""

import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from claw_r1.claw.tls.authority import Authority
from claw_r1.runtime.files import write_secret
from claw_r1.runtime.tls.pem import PemFiles
from claw_r1.weights.deadline import Deadline
from claw_r1.weights.errors import DeadlineExceeded, ManifestMismatch, NotStaged, SecretMissing, TransferFailed
from claw_r1.weights.host_copies import HostCopies
from claw_r1.weights.manifest import WeightsManifest
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.sources import SECRET_VARIABLE, FromTrainer
from claw_r1.weights.transfer_server import Sent, TransferServer
from tests import children
from tests.ipv6 import needs_ipv6
from tests.patience import until
from tests.weights.tensors import Tensors, same, source_of, take, tensors_of

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
BIG = [(f"t{i}", torch.full((1 << 20,), float(i))) for i in range(24)]
"""Far more than sockets buffer, so that a sender cannot have finished when its receiver stops to read."""


def stage(server: TransferServer, version: int, tensors: Tensors | None = None) -> Tensors:
    tensors = tensors_of(version) if tensors is None else tensors
    server.stage("run", version, WeightsSnapshot.of(tensors))
    return tensors


def test_the_versions_of_one_name_do_not_end_those_of_another(server: TransferServer) -> None:
    """A run's versions and its adapters are offered side by side: of each the newest two, until one is published."""
    for name in ("run", "run/adapter"):
        for version in range(3):
            server.stage(name, version, WeightsSnapshot.of(tensors_of(version)))
    digest = WeightsSnapshot.of(tensors_of(1)).manifest.digest
    for name in ("run", "run/adapter"):
        assert server.staged(name, 1, digest).run_id == name
        with pytest.raises(NotStaged):
            server.staged(name, 0, WeightsSnapshot.of(tensors_of(0)).manifest.digest)
    server.settle("run", 2)
    assert server.staged("run/adapter", 1, digest).version == 1
    with pytest.raises(NotStaged):
        server.staged("run", 1, digest)


def half_read(server: TransferServer, version: int, manifest: WeightsManifest) -> socket.socket:
    """A client that asked for a version and reads no more than the first bytes."""
    host, port = server.url.removeprefix("http://").removesuffix("/weights").split(":")
    client = socket.create_connection((host, int(port)), timeout=10)
    target = f"/weights?run_id=run&version={version}&digest={manifest.digest}&worker=slow"
    client.sendall(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    assert client.recv(12).endswith(b"200")
    return client


@pytest.fixture
def sent() -> list[Sent]:
    """How the sends of `server` ended."""
    return []


@pytest.fixture
def server(sent: list[Sent]) -> Iterator[TransferServer]:
    server = TransferServer(on_sent=sent.append)
    yield server
    server.close()


@pytest.fixture
def copies(tmp_path: Path) -> HostCopies:
    return HostCopies(tmp_path / "copies")


def test_a_version_arrives_as_it_was_staged(server: TransferServer, sent: list[Sent], copies: HostCopies) -> None:
    """Names, dtypes, shapes and bytes are equal on the other side, tensors larger than a piece included."""
    tensors = stage(server, 3)
    manifest = WeightsManifest.of(tensors)
    assert same(take(copies, manifest, source_of(server, 3)), tensors)
    until(lambda: bool(sent))
    assert [(each.error, each.bytes_total) for each in sent] == [(None, manifest.bytes_total)]


@needs_ipv6
def test_versions_travel_where_there_is_ipv6_alone(copies: HostCopies) -> None:
    """Offered and read at an address that a URL has in brackets."""
    server = TransferServer("::1")
    try:
        tensors = stage(server, 3)
        assert server.url.startswith("http://[::1]:")
        assert same(take(copies, WeightsManifest.of(tensors), source_of(server, 3)), tensors)
    finally:
        server.close()


def test_a_receiver_that_vanishes_costs_only_its_sender(
    server: TransferServer, sent: list[Sent], copies: HostCopies
) -> None:
    """The send to a worker that is gone ends with an error, and the next one is served."""
    manifest = WeightsManifest.of(stage(server, 1, BIG))
    half_read(server, 1, manifest).close()
    until(lambda: bool(sent))
    assert sent[0].error
    assert same(take(copies, manifest, source_of(server, 1)), BIG)


def test_a_receiver_that_stands_still_costs_only_its_sender(
    monkeypatch: pytest.MonkeyPatch, copies: HostCopies
) -> None:
    """A stopped worker holds one sender until the time of a piece is over; a full house says 503 meanwhile."""
    monkeypatch.setattr("claw_r1.weights.transfer_server.PIECE_TIMEOUT_S", 3.0)  # "busy" is met meanwhile
    sent: list[Sent] = []
    server = TransferServer(senders_max=1, on_sent=sent.append)
    manifest = WeightsManifest.of(stage(server, 1, BIG))
    client = half_read(server, 1, manifest)
    with pytest.raises(TransferFailed, match="busy"):
        take(copies, manifest, source_of(server, 1))
    until(lambda: bool(sent))
    assert sent[0].error
    assert same(take(copies, manifest, source_of(server, 1)), BIG)
    client.close()
    server.close()


def test_a_trainer_killed_in_the_middle_fails_the_receiver_at_once() -> None:
    """A worker whose trainer is killed gets an error, not a hang until its deadline."""
    code = (
        "import time, torch; from claw_r1.weights.snapshot import WeightsSnapshot; from claw_r1.weights.transfer_server import *\n"
        "t = [(f't{i}', torch.full((1 << 20,), float(i))) for i in range(24)]; o = TransferServer()\n"
        "o.stage('run', 1, WeightsSnapshot.of(t)); print(o.url, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code]
    trainer = children.start(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    assert trainer.stdout is not None
    source = FromTrainer(trainer.stdout.readline().strip(), "run", 1, worker_id="w", connect_timeout_s=5)
    manifest = WeightsManifest.of(BIG)
    memory = memoryview(bytearray(BIG[0][1].nbytes))

    def read_all_but_kill_first() -> None:
        with source(manifest, Deadline(900)) as received:
            received.readinto(manifest.tensors[0], 0, memory)
            trainer.send_signal(signal.SIGKILL)
            trainer.wait()
            for tensor in manifest.tensors[1:]:
                received.readinto(tensor, 0, memory)

    with pytest.raises(TransferFailed):  # and not after 15 minutes
        read_all_but_kill_first()


def test_a_trainer_that_stands_still_fails_the_receiver_by_its_deadline(copies: HostCopies, tmp_path: Path) -> None:
    """Nobody waits longer than the deadline, whatever the trainer does, and nothing of the copy stays."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/weights"
        source = FromTrainer(url, "run", 1, worker_id="w", connect_timeout_s=60)
        with pytest.raises((TransferFailed, DeadlineExceeded)):
            take(copies, WeightsManifest.of(BIG), source, seconds=0.5)
    assert not list((tmp_path / "copies").iterdir())


def test_a_fetch_can_be_given_up_at_once(server: TransferServer, copies: HostCopies, tmp_path: Path) -> None:
    """A supervisor that ends does not wait for a trainer that stands still."""
    manifest = WeightsManifest.of(BIG)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = FromTrainer(
            f"http://127.0.0.1:{silent.getsockname()[1]}/w", "run", 1, worker_id="w", connect_timeout_s=600
        )
        deadline = Deadline(600)
        threading.Timer(0.3, deadline.cancel).start()
        with pytest.raises((TransferFailed, DeadlineExceeded)):
            copies.take(manifest, source, deadline)
    assert not list((tmp_path / "copies").iterdir())


def test_versions_staged_during_a_send_do_not_touch_it(server: TransferServer) -> None:
    """A worker that is being sent version 1 receives version 1, however many are staged before it reads."""
    manifest = WeightsManifest.of(stage(server, 1, BIG))
    with source_of(server, 1)(manifest, Deadline(30)) as received:
        for version in (2, 3, 4):
            stage(server, version)
        for number, tensor in enumerate(manifest.tensors):
            content = bytearray(tensor.nbytes)
            received.readinto(tensor, 0, memoryview(content))
            assert torch.frombuffer(content, dtype=torch.float32).eq(float(number)).all()


def test_the_version_asked_for_is_the_version_sent(server: TransferServer, copies: HostCopies) -> None:
    """The two newest versions can be had by number and digest; others are not there, and nothing else is sent instead."""
    manifests = {version: WeightsManifest.of(stage(server, version)) for version in (1, 2, 3)}
    assert same(take(copies, manifests[2], source_of(server, 2)), tensors_of(2))
    for version, digest_of, run_id in ((1, 1, "run"), (3, 2, "run"), (3, 3, "other")):
        with pytest.raises(TransferFailed, match="404"):
            take(HostCopies(copies.directory / "new"), manifests[digest_of], source_of(server, version, run_id))


@pytest.mark.parametrize(
    ("target", "status"), [("?run_id=r&version=x&digest=d", 400), ("?version=1&digest=d", 400), ("/else", 404)]
)
def test_a_bad_request_is_answered(server: TransferServer, target: str, status: int) -> None:
    """Malformed questions get a 4xx, and the next good one is answered."""
    with pytest.raises(urllib.error.HTTPError) as bad:
        urllib.request.urlopen(server.url + target, timeout=5)
    assert bad.value.code == status
    assert urllib.request.urlopen(server.url.replace("/weights", "/healthz"), timeout=5).status == 200


def test_a_version_number_is_never_staged_with_other_bytes(server: TransferServer) -> None:
    """Staging the same version again is harmless with the same bytes and refused with others."""
    stage(server, 1)
    stage(server, 1)
    with pytest.raises(ManifestMismatch):
        stage(server, 1, tensors_of(2))


def test_only_who_has_the_secret_has_weights(monkeypatch: pytest.MonkeyPatch, copies: HostCopies) -> None:
    """With a secret, requests without it are refused; off loopback, there is no server without one."""
    monkeypatch.setenv(SECRET_VARIABLE, "s3cret")
    server = TransferServer()
    manifest = WeightsManifest.of(stage(server, 1))
    monkeypatch.setenv(SECRET_VARIABLE, "guess")
    with pytest.raises(TransferFailed, match="401"):
        take(copies, manifest, source_of(server, 1))
    monkeypatch.setenv(SECRET_VARIABLE, "s3cret")
    assert same(take(copies, manifest, source_of(server, 1)), tensors_of(1))
    server.close()
    monkeypatch.delenv(SECRET_VARIABLE)
    with pytest.raises(SecretMissing, match=SECRET_VARIABLE):
        TransferServer("0.0.0.0")  # it must be refused


def test_by_tls_both_ends_prove_who_they_are(copies: HostCopies, tmp_path: Path) -> None:
    """A worker of the authority gets the bytes; one without a certificate, or of another authority, or by http, gets none."""
    authority, other = Authority.new(), Authority.new()
    for name, issuer in (("own", authority), ("other", other)):
        (tmp_path / f"{name}-ca.pem").write_text(issuer.pem)
        write_secret(tmp_path / f"{name}.pem", issuer.issue("localhost", names=("localhost",)))

    def end(authorities: str, certificate: str | None) -> PemFiles:
        return PemFiles(tmp_path / authorities, certificate and tmp_path / certificate, None)

    server = TransferServer(tls=end("own-ca.pem", "own.pem").context(server=True))
    tensors = stage(server, 1, BIG)
    manifest = WeightsManifest.of(tensors)
    for url, worker in (
        (server.url, end("own-ca.pem", None)),
        (server.url, end("own-ca.pem", "other.pem")),
        (server.url, end("other-ca.pem", "own.pem")),
        (server.url.replace("https", "http"), end("own-ca.pem", "own.pem")),
    ):
        with pytest.raises(TransferFailed):
            take(copies, manifest, source_by(url, worker.context()))
    assert same(take(copies, manifest, source_by(server.url, end("own-ca.pem", "own.pem").context())), tensors)
    server.close()


def source_by(url: str, tls: ssl.SSLContext) -> FromTrainer:
    assert url.startswith("http")
    return FromTrainer(url, "run", 1, worker_id="w", connect_timeout_s=5, tls=tls)
