"""Laws of a real worker: vLLM under its supervisor, fed by a trainer in this process.

The tests share one worker and run in order: each publishes versions of its own, the last two break the worker.
"""

import copy
import fcntl
import json
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from claw_r1.rollout.probe import FP32_GAP_MAX
from claw_r1.schemas.http import TOKENS_CAPABILITIES, TOKENS_COMMENT
from claw_r1.weights.manifest import WeightsManifest, memory_of
from tests.children import HEAVY_START_S, is_gone
from tests.patience import until
from tests.rollout.tiny_model import make_tiny_model
from tests.rollout.worker import ASKS, RUN, Spans, Worker, gap, spans_of
from tests.soak import only_in_soak

pytestmark = pytest.mark.vllm
TOLERANCE = 1e-4
VERSIONS = range(12, 33)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """One worker for all tests here; it starts without any published version."""
    torch.set_num_threads(1)
    model = tmp_path_factory.mktemp("model")
    make_tiny_model(model)
    worker = Worker(model, tmp_path_factory.mktemp("worker"))
    try:
        worker.wait_ready(None, seconds=HEAVY_START_S)
        yield worker
    finally:
        worker.close()


def tiles(spans: list[tuple[str, int, int]], length: int) -> bool:
    """Whether spans cover [0, length) without gap or overlap."""
    ends = [0, *(end for _, _, end in spans)]
    return (
        all(start == before < end for (_, start, end), before in zip(spans, ends, strict=False)) and ends[-1] == length
    )


def test_a_new_worker_labels_the_weights_it_started_with(worker: Worker) -> None:
    """Before any version is published, replies carry the label base/0, and capabilities are reported."""
    report = worker.wait_ready(None)
    assert worker.label() == "base/0"
    assert set(report["capabilities"]) == set(TOKENS_CAPABILITIES)
    assert spans_of(worker.chat(max_tokens=3, ignore_eos=True)) == {"0": [("base/0", 0, 3)]}


def test_a_published_version_is_served_exactly(worker: Worker) -> None:
    """After a push, greedy choices and log-probabilities are transformers' of the new weights, tied head included."""
    for version in (0, 1):
        worker.push(version)
        assert worker.label() == f"{RUN}/{version}"
        assert worker.greedy_gap(version) <= TOLERANCE
    assert "updating" in worker.states()


def test_json_replies_carry_spans_that_tile_every_choice(worker: Worker) -> None:
    """With several choices of different lengths, each has spans over exactly its tokens."""
    reply = worker.chat(n=3, max_tokens=40, temperature=1.0)
    spans = spans_of(reply)
    choices = reply.json()["choices"]
    assert set(spans) == {str(choice["index"]) for choice in choices}
    assert all(tiles(spans[str(choice["index"])], len(choice["token_ids"])) for choice in choices)


def test_streams_carry_spans_just_before_their_end(worker: Worker) -> None:
    """One SSE comment, after the last token and before [DONE], with spans over each choice's tokens."""
    reply = worker.chat(n=2, max_tokens=9, ignore_eos=True, stream=True)
    lines = [line for line in reply.text.splitlines() if line]
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    lengths = {str(index): 0 for index in range(2)}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        lengths[str(choice["index"])] += len(choice.get("token_ids") or [])
    assert all(tiles(spans_of(reply)[index], length) and length == 9 for index, length in lengths.items())
    assert [line.startswith(TOKENS_COMMENT) for line in lines] == [False] * (len(lines) - 2) + [True, False]
    assert lines[-1] == "data: [DONE]"


def test_replies_with_one_request_id_do_not_mix(worker: Worker) -> None:
    """Simultaneous calls that carry the same X-Request-Id each get their own spans."""
    body = {"model": "policy", "messages": [{"role": "user", "content": "x"}], "ignore_eos": True}

    def call(length: int) -> int:
        headers = {"x-request-id": "same", **ASKS}
        url = f"{worker.url}/v1/chat/completions"
        reply = worker.http.post(url, json={**body, "max_tokens": length}, headers=headers)
        return spans_of(reply)["0"][-1][2]

    lengths = list(range(10, 16))
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(call, lengths)) == lengths


def test_replies_in_flight_keep_exact_versions_across_updates(worker: Worker) -> None:
    """Tokens sampled while versions change have the log-probability that the version of their span gives them."""

    def call(seed: int) -> tuple[dict[str, Any], Spans]:
        reply = worker.chat(max_tokens=800, temperature=1.0, ignore_eos=True, seed=seed)
        return reply.json(), spans_of(reply)

    with ThreadPoolExecutor(5) as pool:
        replies = [pool.submit(call, seed) for seed in range(5)]
        until(lambda: worker.http.get(f"{worker.url}/claw/info").json()["in_flight"] == 5, "five in flight")
        for version in (2, 3, 4):
            worker.push(version)
    seen: set[str] = set()
    for body, spans in (future.result() for future in replies):
        ids = body["choices"][0]["token_ids"]
        logprobs = [entry["logprob"] for entry in body["choices"][0]["logprobs"]["content"]]
        assert len(ids) == 800
        assert tiles(spans["0"], 800)
        for label, start, end in spans["0"]:
            reference = worker.reference(int(label.split("/")[1]), body["prompt_token_ids"], ids)[start:end]
            assert gap(reference, ids[start:end], logprobs[start:end]) <= TOLERANCE
            seen.add(label)
    assert len(seen) >= 3, f"only {seen} were seen: the updates were not during the replies"


@pytest.mark.parametrize("path", ["/pause", "/resume", "/update_weight_version", "/collective_rpc", "/openapi.json"])
def test_control_routes_are_closed(worker: Worker, path: str) -> None:
    """Without the secret, or with a wrong one, a control route looks as if it were not there."""
    for headers in ({}, {"x-claw-control": "wrong"}, {"x-claw-control": ""}):
        assert worker.http.post(worker.url + path, headers=headers, json={}).status_code == 404


@pytest.mark.parametrize("path", ["//pause", "/pause/", "/%70ause", "/v1/../pause", "/v1/load_lora_adapter"])
def test_the_guard_has_no_side_door(worker: Worker, path: str) -> None:
    """Spellings of control routes, and control routes under open-looking prefixes, are closed too."""
    host, port = worker.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as raw:
        raw.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        assert raw.recv(64).split()[1] == b"404"


class BadTrainer:
    """Answers like a transfer server and then ends after half of the bytes, sends other bytes, or sends nothing more."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.nbytes = 0
        self.requests = 0
        trainer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                trainer.requests += 1
                self.send_response(200)
                self.send_header("content-length", str(trainer.nbytes))
                self.end_headers()
                self.wfile.write(b"\x01" * (trainer.nbytes // (1 if trainer.how == "lies" else 2)))
                if trainer.how == "stalls":
                    trainer.closed.wait(30)

            def log_message(self, *args: object) -> None: ...

        self.closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/weights"

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.parametrize(("how", "version"), [("dies", 5), ("lies", 7), ("stalls", 9)])
def test_a_transfer_that_fails_leaves_the_old_weights(worker: Worker, how: str, version: int) -> None:
    """A trainer that dies, lies or stalls changes nothing: old label, old log-probabilities; the next push works."""
    trainer = BadTrainer(how)
    # The first question may come as soon as the event is out, so the size must be there before.
    trainer.nbytes = sum(parameter.nbytes for parameter in worker.base.parameters())
    states = len(worker.states())
    before = worker.wait_ready(worker.last_report()["version"])["version"]  # type: ignore[index]  # the kind that this test makes has it
    worker.publish(version, offer_url=trainer.url)
    until(lambda: trainer.requests >= 2, "a second attempt")
    trainer.close()
    report = worker.wait_ready(before)
    until(lambda: (worker.last_report() or {}).get("detail"), "a reason in the report")
    assert report["version"] == before
    assert worker.label() == f"{RUN}/{before}"
    assert worker.greedy_gap(before) <= TOLERANCE
    assert "updating" not in worker.states()[states:], "the engine was paused for bytes that nobody had checked"
    worker.push(version + 1)
    assert worker.greedy_gap(version + 1) <= TOLERANCE


def test_without_a_trainer_the_checkpoint_is_loaded(worker: Worker, tmp_path: Path) -> None:
    """A version whose trainer is gone comes from the published directory, exactly."""
    worker.changed_model(11).save_pretrained(tmp_path)
    worker.publish(11, checkpoint=tmp_path, offer_url="http://127.0.0.1:9/weights")
    worker.wait_ready(11)
    assert worker.label() == f"{RUN}/11"
    assert worker.greedy_gap(11) <= TOLERANCE


def test_an_older_version_is_not_loaded(worker: Worker) -> None:
    """Within a run versions only go forward, whatever is published late."""
    worker.publish(3)
    worker.push(12)
    assert worker.label() == f"{RUN}/12"
    assert worker.greedy_gap(12) <= TOLERANCE


def test_twenty_updates_keep_every_token_of_eight_conversations_exact(worker: Worker) -> None:
    """Each token has the log-probability that the version of its span gives it after all that stands before it.

    The conversations begin alike, so that they share what is cached: nothing of it outlives the version that computed it.
    """
    prefix = [(11 * number) % 250 + 5 for number in range(600)]
    over = threading.Event()
    replies: list[tuple[list[int], httpx.Response]] = []

    def converse(number: int) -> None:
        prompt, turn = [*prefix, number], 0
        while not over.is_set():
            turn += 1
            replies.append((prompt, worker.complete(prompt, max_tokens=60, temperature=1.0, seed=100 * number + turn)))
            prompt = [*prompt, *replies_ids(replies[-1][1])]
            prompt = prompt if len(prompt) < 1500 else [*prefix, number]

    worker.push(VERSIONS[0])  # whichever test came before, each token is of a version that is known here
    with ThreadPoolExecutor(8) as pool:
        conversations = [pool.submit(converse, number) for number in range(8)]
        try:
            for version in VERSIONS[1:]:
                worker.push(version)
                # The first one may have to compute the prefix, the second has it from the cache.
                replies += [(prefix, worker.complete(prefix, max_tokens=1, temperature=1.0)) for _ in range(2)]
                assert replies[-1][1].json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 500
                assert worker.last_sync_ms()["probe_gap"] < FP32_GAP_MAX
        finally:
            over.set()
        for conversation in conversations:
            conversation.result()
    seen, changed = set[str](), 0
    for prompt, reply in replies:
        spans = spans_of(reply)
        (choice,) = reply.json()["choices"]
        ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        assert tiles(spans["0"], len(ids))
        for label, start, end in spans["0"]:
            reference = worker.reference(int(label.split("/")[1]), prompt, ids)[start:end]
            assert gap(reference, ids[start:end], logprobs[start:end]) <= TOLERANCE
        seen |= {label for label, _, _ in spans["0"]}
        changed += len(spans["0"]) > 1
    assert seen >= {f"{RUN}/{version}" for version in VERSIONS[1:]}
    assert changed >= 20, "the updates were not during the replies"


def replies_ids(reply: httpx.Response) -> list[int]:
    ids: list[int] = reply.json()["choices"][0]["token_ids"]
    return ids


def test_wrong_bytes_under_a_right_digest_are_caught(worker: Worker) -> None:
    """A host's copy with the (tied) head of an older version: the probe tells, the worker says so, and starts again."""
    model = worker.changed_model(33)
    behind = copy.deepcopy(model)
    with torch.no_grad():
        behind.get_input_embeddings().weight.copy_(worker.base.get_input_embeddings().weight)
    engine, seen = worker.engine_core(), len(worker.states())
    with damaged_copy(worker, model, behind):
        worker.publish(33)
        report = until(lambda: worker.report_with("probe", since=seen), "a word about the probe")
        assert report["state"] == "starting"
        assert "does not serve run-1/33" in report["detail"]
        worker.publish(34)
        worker.wait_ready(34, seconds=HEAVY_START_S)
    assert not engine.is_running()
    assert worker.last_sync_ms()["probe_gap"] < FP32_GAP_MAX
    assert worker.greedy_gap(34) <= TOLERANCE


@contextmanager
def damaged_copy(worker: Worker, model: torch.nn.Module, content: torch.nn.Module) -> Iterator[None]:
    """The host has a copy under the digest of `model`'s weights, verified once, whose bytes are now those of `content`."""
    manifest = WeightsManifest.of((name, tensor.detach()) for name, tensor in model.named_parameters())
    path = worker.copies / manifest.digest
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # as who holds it, or the next fetch would sweep it away
        for (_, start), tensor in zip(manifest.offsets(), content.parameters(), strict=True):
            file.seek(start)
            file.write(memory_of(tensor.detach()))
        file.truncate(manifest.bytes_flat)
        yield
    path.unlink(missing_ok=True)


@only_in_soak
def test_a_killed_engine_is_replaced_and_catches_up(worker: Worker) -> None:
    """After kill -9 of the engine, the worker is ready again only with the latest version."""
    worker.push(35)
    worker.engine_core().send_signal(signal.SIGKILL)
    until(lambda: (worker.last_report() or {}).get("state") != "ready", "not ready any more")
    seen = len(worker.states())
    worker.wait_ready(35, seconds=HEAVY_START_S)
    reports = [json.loads(line) for line in worker.reports.read_text().splitlines()[seen:]]
    assert all(report["version"] == 35 for report in reports if report["state"] == "ready")
    assert worker.label() == f"{RUN}/35"
    assert worker.greedy_gap(35) <= TOLERANCE


def test_a_killed_supervisor_leaves_no_process(worker: Worker) -> None:
    """After kill -9 of the supervisor neither its reaper nor any of vLLM's processes goes on."""
    processes = worker.processes()
    assert len(processes) >= 4
    worker.process.kill()
    worker.process.wait()
    until(lambda: all(map(is_gone, processes)), "all processes gone")
