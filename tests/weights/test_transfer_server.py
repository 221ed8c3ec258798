"""Transfers between real processes over gloo on the loopback interface."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests import children
from weights.errors import ManifestMismatch, TransferFailed
from weights.manifest import WeightsManifest, memory_of
from weights.receive import receive
from weights.rendezvous import Transfer
from weights.sender import Sent
from weights.snapshot import WeightsSnapshot
from weights.transfer_server import TransferServer

pytestmark = pytest.mark.process

PEER = Path(__file__).with_name("peer.py")
ROOT = PEER.parents[2]
Tensors = list[tuple[str, torch.Tensor]]


def tensors_of(seed: int) -> Tensors:
    """Several dtypes, an empty and a scalar tensor, a strided one, and one of many buckets (4 KiB each here)."""
    g = torch.Generator().manual_seed(seed)
    return [
        ("embed", torch.randn(300, 17, generator=g)),
        ("half", torch.randn(33, generator=g).to(torch.bfloat16)),
        ("strided", torch.randn(8, 6, generator=g).t()),
        ("scalar", torch.tensor(seed)),
        ("empty", torch.empty(0, 4)),
        ("mask", torch.rand(9, generator=g) > 0.5),
    ]


def stage(
    server: TransferServer, version: int, tensors: Tensors | None = None, bucket_bytes_max: int = 4096
) -> Tensors:
    tensors = tensors_of(version) if tensors is None else tensors
    server.stage("run", version, WeightsSnapshot.of(tensors, bucket_bytes_max))
    return tensors


def peer(server: TransferServer, *args: str, query: str = "worker=w") -> subprocess.Popen[str]:
    command = [sys.executable, str(PEER), f"{server.url}?{query}", *args]
    return children.start(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})


def outcome_of(process: subprocess.Popen[str]) -> dict[str, object]:
    try:
        out, _ = process.communicate(timeout=children.HEAVY_START_S)
    finally:
        children.end(process)
    answer: dict[str, object] = json.loads(out)
    return answer


def until(condition: Callable[[], bool], seconds: float) -> None:
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, "condition not met in time"
        time.sleep(0.01)


@pytest.fixture
def sent() -> list[Sent]:
    """How the sends of `server` ended."""
    return []


@pytest.fixture
def server(sent: list[Sent]) -> Iterator[TransferServer]:
    server = TransferServer(timeout_s=20, on_sent=sent.append)
    yield server
    server.close()


def described(tensors: Tensors) -> list[object]:
    return [[n, str(t.dtype), list(t.shape), bytes(memory_of(t)).hex()[:64]] for n, t in tensors]


def test_another_process_receives_the_same_bytes(server: TransferServer, sent: list[Sent]) -> None:
    """Names, dtypes, shapes and bytes are equal on the other side, tensors larger than a bucket included."""
    tensors = stage(server, 3)
    received = outcome_of(peer(server))
    assert received["version"] == 3
    assert received["tensors"] == described(tensors)
    until(lambda: bool(sent), 5)
    assert [(each.error, each.bytes_total) for each in sent] == [(None, WeightsManifest.of(tensors).bytes_total)]


def test_several_workers_receive_at_the_same_time(server: TransferServer) -> None:
    """Concurrent server do not mix: each has a rendezvous of its own."""
    tensors = stage(server, 1)
    peers = [peer(server, query=f"worker=w{i}") for i in range(3)]
    assert all(outcome_of(p)["tensors"] == described(tensors) for p in peers)


def test_a_receiver_killed_in_the_middle_costs_only_its_sender() -> None:
    """The sender of a dead worker ends with an error, and the next offer is served."""
    sent: list[Sent] = []
    server = TransferServer(timeout_s=20, on_sent=sent.append)
    # Far more than the sockets buffer, so that the sender cannot have finished when the worker dies.
    big = [(f"t{i}", torch.full((1 << 20,), float(i))) for i in range(24)]
    stage(server, 1, big, 1 << 20)
    victim = peer(server, "2")
    assert victim.wait(timeout=30) == -signal.SIGKILL
    until(lambda: bool(sent), 5)
    assert sent[0].error
    assert outcome_of(peer(server))["version"] == 1
    server.close()


def test_a_receiver_that_never_comes_costs_only_its_deadline() -> None:
    """An offer that nobody takes up ends by its deadline and frees its sender."""
    sent: list[Sent] = []
    server = TransferServer(timeout_s=0.5, senders_max=1, on_sent=sent.append)
    stage(server, 1)
    server.start_transfer("nobody")
    with pytest.raises(urllib.error.HTTPError) as busy:
        urllib.request.urlopen(f"{server.url}?worker=w", timeout=5)
    assert busy.value.code == 503
    until(lambda: bool(sent), 5)
    assert sent[0].error
    server.start_transfer("next")
    server.close()


def test_a_sender_killed_in_the_middle_fails_the_receiver_at_once() -> None:
    """A worker whose trainer is killed gets an error, not a hang."""
    code = (
        "import sys, time, torch; from weights.snapshot import WeightsSnapshot; from weights.transfer_server import TransferServer\n"
        "t = [(f't{i}', torch.zeros(1 << 20)) for i in range(24)]; o = TransferServer(timeout_s=900)\n"
        "o.stage('run', 1, WeightsSnapshot.of(t, 1 << 20)); print(o.url, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code]
    trainer = children.start(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    assert trainer.stdout is not None
    url = trainer.stdout.readline().strip()
    with urllib.request.urlopen(f"{url}?worker=w", timeout=5) as reply:
        offer = Transfer.from_json(json.load(reply))
    stream = receive(offer.rendezvous, offer.manifest)
    next(stream)
    trainer.kill()
    trainer.wait()
    with pytest.raises(TransferFailed):  # and not after 15 minutes
        list(stream)


def test_a_sender_that_is_gone_before_the_start_fails_by_the_deadline(server: TransferServer) -> None:
    """A rendezvous at which nobody waits is an error when its time is over."""
    stage(server, 1)
    offer = server.start_transfer("w")
    lonely = replace(offer.rendezvous, prefix="claw/nobody", timeout_s=0.5)
    with pytest.raises(TransferFailed):
        list(receive(lonely, offer.manifest))


def test_versions_staged_during_a_send_do_not_touch_it(server: TransferServer) -> None:
    """A worker that was offered version 1 receives version 1, however many are staged before it reads."""
    first = stage(server, 1)
    offer = server.start_transfer("slow")
    for version in (2, 3, 4):
        stage(server, version)
    received = list(receive(offer.rendezvous, offer.manifest))
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(received, first, strict=True))
    assert server.start_transfer("w").version == 4


def test_the_version_asked_for_is_the_version_given(server: TransferServer) -> None:
    """The two newest versions can be asked for by number; others are not there, and nothing else is given instead."""
    for version in (1, 2, 3):
        stage(server, version)
    assert outcome_of(peer(server, query="worker=w&run_id=run&version=2"))["version"] == 2
    for query in ("worker=w&version=1", "worker=w&run_id=other"):
        with pytest.raises(urllib.error.HTTPError) as absent:
            urllib.request.urlopen(f"{server.url}?{query}", timeout=5)
        assert absent.value.code == 404


@pytest.mark.parametrize(("target", "status"), [("?worker=w&version=x", 400), ("", 400), ("/else", 404)])
def test_a_bad_request_is_answered(server: TransferServer, target: str, status: int) -> None:
    """Malformed questions get a 4xx, and the next good one is answered."""
    with pytest.raises(urllib.error.HTTPError) as bad:
        urllib.request.urlopen(server.url + target, timeout=5)
    assert bad.value.code == status
    assert urllib.request.urlopen(server.url.replace("/offer", "/healthz"), timeout=5).status == 200


def test_a_version_number_is_never_staged_with_other_bytes(server: TransferServer) -> None:
    """Staging the same version again is harmless with the same bytes and refused with others."""
    stage(server, 1)
    stage(server, 1)
    with pytest.raises(ManifestMismatch):
        stage(server, 1, tensors_of(2))


def test_closing_does_not_wait_for_a_hanging_send() -> None:
    """close() returns while a sender has a quarter of an hour left to wait for its worker."""
    server = TransferServer(timeout_s=900)
    stage(server, 1)
    server.start_transfer("nobody")
    server.close()


def test_a_trainer_may_end_while_a_send_waits() -> None:
    """The send's thread comes back out of torch before the interpreter shuts down: later, it would abort the process."""
    code = (
        "import time, torch; from weights.snapshot import WeightsSnapshot; from weights.transfer_server import TransferServer\n"
        "class Slow:\n    def __del__(self, sleep=time.sleep): sleep(3)\n"
        "slow = Slow(); t = [('t', torch.zeros(4))]; o = TransferServer(timeout_s=2)\n"  # its time ends in slow's
        "o.stage('run', 1, WeightsSnapshot.of(t)); o.start_transfer('nobody'); time.sleep(0.5); o.close()"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, timeout=120)
    assert ended.returncode == 0
