"""Laws of an engine of two ranks: a real worker, its vLLM on two processes of the CPU, to which a trainer in this process carries by gloo.

The tests share one worker and run in order, in `make soak` alone (three processes load vLLM); the last two break it.
"""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psutil  # type: ignore[import-untyped]  # a test helper without stubs
import pytest
import torch

from claw_r1.runtime.processes import child
from claw_r1.weights.carry.carrier_handle import CARRIER
from claw_r1.weights.carry.carrying import Carrying
from tests.children import HEAVY_START_S, is_gone
from tests.patience import until
from tests.rollout import holds
from tests.rollout.tiny_model import make_tiny_model
from tests.rollout.trainer import last_version
from tests.rollout.worker import Worker, command_line, gap, spans_of
from tests.soak import ONLY_IN_SOAK

pytestmark = [pytest.mark.vllm, *ONLY_IN_SOAK]
TOLERANCE = 1e-4
BUCKET = 1 << 16
"""An eighth of the model."""
RANKS = {"VLLM::Worker_TP0", "VLLM::Worker_TP1"}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """One worker of two ranks, for a model with two key-value heads."""
    torch.set_num_threads(1)
    model = tmp_path_factory.mktemp("model")
    make_tiny_model(model, kv_heads=2)
    worker = Worker(model, tmp_path_factory.mktemp("worker"), tensor_parallel=2, transports='["gloo", "http"]')
    spawn = partial(child.start_spoken_to, CARRIER)
    worker.transfer_server.carrying = Carrying(("gloo",), spawn, bucket_bytes=BUCKET)
    try:
        worker.wait_ready(None, seconds=HEAVY_START_S)
        yield worker
    finally:
        worker.close()


def ranks(worker: Worker) -> list[psutil.Process]:
    """The processes that hold a part of the model each."""
    return [process for process in worker.processes() if process.name() in RANKS]


def test_a_published_version_is_served_exactly(worker: Worker) -> None:
    """Two processes share the model, and after each push log-probabilities are transformers' of the new weights."""
    assert len(ranks(worker)) == 2
    for version in (0, 1):
        worker.push(version)
        assert worker.greedy_gap(version) <= TOLERANCE
        assert worker.weights_from() == "gloo"


def test_replies_in_flight_are_exact_across_updates(worker: Worker) -> None:
    """No token comes from an engine whose ranks hold different versions: each has the log-probability of its span's."""

    def call(seed: int) -> tuple[dict[str, Any], list[tuple[str, int, int]]]:
        reply = worker.chat(max_tokens=600, temperature=1.0, ignore_eos=True, seed=seed)
        return reply.json(), spans_of(reply)["0"]

    with ThreadPoolExecutor(4) as pool:
        replies = [pool.submit(call, seed) for seed in range(4)]
        until(lambda: worker.http.get(f"{worker.url}/claw/info").json()["in_flight"] == 4, "four in flight")
        for version in (2, 3):
            worker.push(version)
    labels: set[str] = set()
    for body, spans in (future.result() for future in replies):
        ids = body["choices"][0]["token_ids"]
        logprobs = [entry["logprob"] for entry in body["choices"][0]["logprobs"]["content"]]
        for label, start, end in spans:
            reference = worker.reference(int(label.split("/")[1]), body["prompt_token_ids"], ids)[start:end]
            assert gap(reference, ids[start:end], logprobs[start:end]) <= TOLERANCE
            labels.add(label)
        assert spans[-1][2] == len(ids) == 600
    assert len(labels) >= 2, "the updates were not during the replies"


def test_the_engine_says_what_it_did(worker: Worker) -> None:
    """Seconds by what was done, each counted once; and the use of the KV cache."""
    info = worker.http.get(f"{worker.url}/claw/info").json()
    assert set(info["seconds"]) == {"serving", "idle", "paused"}
    assert info["seconds"]["serving"] > 0 < info["seconds"]["paused"]
    assert 0 <= info["kv_usage"] <= 1


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        ("its carrier", signal.SIGKILL),
        ("carrier", signal.SIGSTOP),
        ("carrier", signal.SIGKILL),
        ("rank", signal.SIGKILL),
    ],
)
def test_a_fault_in_the_middle_of_a_version_costs_it_its_way(worker: Worker, victim: str, number: int) -> None:
    """Whoever dies or stands still, the trainer's carrier, the worker's or a rank: both ranks serve this version exactly, and the next one
    comes by the carrier again."""
    version = last_version(worker.events) + 1
    with holds.held(worker.holds, worker.worker_id, "middle") as met:
        worker.publish(version)
        carrier = psutil.Process(holds.pid_of(met))
        below = psutil.Process().children(recursive=True)
        own = next(each for each in below if CARRIER in command_line(each))  # a worker's carriers are others
        {"its carrier": own, "carrier": carrier, "rank": ranks(worker)[1]}[victim].send_signal(number)
    worker.wait_ready(version, seconds=HEAVY_START_S)
    assert worker.greedy_gap(version) <= TOLERANCE
    worker.publish(version + 1)
    worker.wait_ready(version + 1, seconds=HEAVY_START_S)
    assert worker.weights_from() == "gloo"
    assert worker.greedy_gap(version + 1) <= TOLERANCE
    assert len(ranks(worker)) == 2


def test_a_killed_rank_takes_its_engine_with_it(worker: Worker) -> None:
    """After kill -9 of one rank no token comes from the other: a new engine serves the latest version, both ranks of it."""
    version = last_version(worker.events) + 1
    worker.push(version)
    before = ranks(worker)
    before[1].send_signal(signal.SIGKILL)
    until(lambda: (worker.last_report() or {}).get("state") != "ready", "not ready any more")
    worker.wait_ready(version, seconds=HEAVY_START_S)
    assert not {process.pid for process in before} & {process.pid for process in ranks(worker)}
    assert worker.greedy_gap(version) <= TOLERANCE


def test_a_killed_supervisor_leaves_no_rank(worker: Worker) -> None:
    """Every process of the engine ends with the supervisor, however that ends."""
    processes = worker.processes()
    assert len(ranks(worker)) == 2
    worker.process.kill()
    worker.process.wait()
    until(lambda: all(map(is_gone, processes)), "all processes gone")
