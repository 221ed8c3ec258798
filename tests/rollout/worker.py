"""Drives a real worker from outside: publish versions, read its reports, call its vLLM, compare with transformers."""

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]  # a test helper without stubs
import torch
from transformers import AutoModelForCausalLM

from claw_r1.schemas.codec import encode
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import TensorSpec, WeightsPublished
from claw_r1.schemas.http import TOKENS_COMMENT, TOKENS_HEADER
from claw_r1.weights.manifest import WeightsManifest
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.transfer_server import TransferServer
from tests import children
from tests.patience import PATIENCE_S, until
from tests.rollout import holds

ROOT = Path(__file__).parents[2]
RUN = "run-1"
PROBE = [(7 * number) % 250 + 5 for number in range(48)]
Json = dict[str, Any]
Spans = dict[str, list[tuple[str, int, int]]]
"""Choice index -> (label, start, end) over its tokens."""
ASKS = {TOKENS_HEADER: "1"}
"""The header by which a worker is asked for what it sampled."""


class Worker:
    """A supervisor process with its vLLM, and the trainer that feeds it (this process, unless another writes `events`).

    Workers of one directory are of one host: they share the copies and follow the same events.
    """

    def __init__(self, model: Path, directory: Path, worker_id: str = "w0", **settings: object) -> None:
        """settings: of the worker, beside those that all tests have."""
        self.model = model
        self.worker_id = worker_id
        self.settings = {name.upper(): str(value) for name, value in settings.items()}
        self.events = directory / "events"
        self.reports = directory / f"reports-{worker_id}"
        self.log = directory / f"vllm-{worker_id}.log"
        self.errors = directory / f"supervisor-{worker_id}.log"
        self.copies = directory / "copies"
        self.holds = directory / "holds"
        self.holds.mkdir(exist_ok=True)
        self.events.touch()
        self.transfer_server = TransferServer()
        self.base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self.versions: dict[int, torch.nn.Module] = {}
        self.http = httpx.Client(timeout=60)
        self.spawn()

    def spawn(self) -> None:
        """Start the supervisor; anew, when the one before is dead."""
        settings = {
            "MODEL": str(self.model),
            "COPIES_DIR": str(self.copies),
            "MODEL_ID": "tiny",
            "WORKER_ID": self.worker_id,
            "LOG_FILE": str(self.log),
            "KV_CACHE_BYTES": "64M",
            "REPORT_INTERVAL_S": "0.5",
            "HEALTH_INTERVAL_S": "0.2",
            "RETRY_INTERVAL_S": "0.5",
            "FETCH_TIMEOUT_S": "3",
            "START_TIMEOUT_S": str(children.HEAVY_START_S),
            **self.settings,
        }
        environment = {**os.environ, **{f"CLAW_ROLLOUT_{k}": v for k, v in settings.items()}, "PYTHONPATH": str(ROOT)}
        environment |= {holds.FOLDER: str(self.holds), holds.WHO: self.worker_id}
        script = Path(__file__).with_name("supervise.py")
        command = [sys.executable, str(script), str(self.events), str(self.reports)]
        with self.errors.open("ab") as errors:
            self.process = children.start(command, env=environment, stderr=errors, cwd=ROOT)

    def last_report(self) -> Json | None:
        """The last whole line, read alone: who waits for it looks fifty times a second, and a long test has thousands of lines."""
        text = self.reports.read_bytes() if self.reports.exists() else b""
        whole = text[: text.rfind(b"\n") + 1].rstrip()
        return json.loads(whole[whole.rfind(b"\n") + 1 :]) if whole else None

    def weights_from(self) -> str:
        """The way by which it has its version, and why not by others."""
        return str((self.last_report() or {})["weights_from"])

    def last_sync_ms(self) -> dict[str, float]:
        return dict((self.last_report() or {})["sync_ms"])

    def report_with(self, word: str, *, since: int) -> Json | None:
        """The first report behind that number whose detail has the word."""
        return next((each for each in self._read_reports()[since:] if word in (each["detail"] or "")), None)

    def states(self) -> list[str]:
        return [report["state"] for report in self._read_reports()]

    def _read_reports(self) -> list[Json]:
        """Whole lines only: the worker may be writing the last one."""
        text = self.reports.read_text() if self.reports.exists() else ""
        return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]

    def wait_ready(self, version: int | None, seconds: float = PATIENCE_S) -> Json:
        """Until the worker reports that it serves this version."""

        def probe() -> Json | None:
            report = self.last_report()
            assert self.process.poll() is None, self.errors.read_text()[-3000:]
            return report if report and (report["state"], report["version"]) == ("ready", version) else None

        return until(probe, f"ready with {version}, is {self.last_report()}", patience_s=seconds)

    @property
    def url(self) -> str:
        report = self.last_report()
        assert report is not None
        return str(report["url"])

    def changed_model(self, version: int) -> torch.nn.Module:
        """Other weights than any other version's, far enough apart to tell by log-probabilities."""
        self.versions[version] = changed(self.base, version)
        return self.versions[version]

    def publish(
        self,
        version: int,
        *,
        checkpoint: Path | None = None,
        offer_url: str | None = None,
    ) -> WeightsManifest:
        """Stage and publish a new version; from `checkpoint` or somebody else's offer instead where one is given."""
        model = self.changed_model(version)
        tensors = [(name, p.detach()) for name, p in model.named_parameters()]
        manifest = WeightsManifest.of(tensors)
        if checkpoint is None and offer_url is None:
            self.transfer_server.stage(RUN, version, WeightsSnapshot.of(tensors))
            offer_url = self.transfer_server.url
        uri = None if checkpoint is None else str(checkpoint)
        write_published(self.events, version, manifest, model, offer_url, uri)
        return manifest

    def push(self, version: int) -> None:
        """Publish and wait until it is served."""
        self.publish(version)
        self.wait_ready(version)

    def label(self) -> str:
        return str(self.http.get(f"{self.url}/claw/info").json()["label"])

    def chat(self, **fields: object) -> httpx.Response:
        messages = [{"role": "user", "content": "hello world"}]
        body = {"model": "policy", "messages": messages, "return_token_ids": True, "logprobs": True, **fields}
        reply = self.http.post(f"{self.url}/v1/chat/completions", json=body, headers=ASKS)
        assert reply.status_code == 200, reply.text
        return reply

    def greedy_gap(self, version: int) -> float:
        """Largest difference of a log-probability to transformers' of this version; inf when greedy choices differ."""
        body = self.chat(temperature=0, max_tokens=16, ignore_eos=True).json()
        prompt, ids = body["prompt_token_ids"], body["choices"][0]["token_ids"]
        logprobs = [entry["logprob"] for entry in body["choices"][0]["logprobs"]["content"]]
        reference = self.reference(version, prompt, ids)
        if reference.argmax(-1).tolist() != ids:
            return float("inf")
        return gap(reference, ids, logprobs)

    def reference(self, version: int, prompt: list[int], ids: list[int]) -> torch.Tensor:
        """Log-probabilities [len(ids), vocabulary] by transformers."""
        return scores(self.versions[version], prompt + ids)[len(prompt) - 1 :]

    def complete(self, prompt: list[int], **fields: object) -> httpx.Response:
        body = {
            "model": "policy",
            "prompt": prompt,
            "return_token_ids": True,
            "logprobs": 0,
            "ignore_eos": True,
            **fields,
        }
        reply = self.http.post(f"{self.url}/v1/completions", json=body, headers=ASKS)
        assert reply.status_code == 200, reply.text
        return reply

    def processes(self) -> list[psutil.Process]:
        """The supervisor and everything below it."""
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def engine_core(self) -> psutil.Process:
        """vLLM's engine, a great-grandchild of the supervisor: supervisor, reaper, API server, engine."""
        return next(p for p in self.processes() if "EngineCore" in p.name() or "EngineCore" in command_line(p))

    def close(self) -> None:
        try:
            self.transfer_server.close()
            self.http.close()
        finally:
            children.end(self.process)  # its reaper ends vLLM with it, however it ends


def spans_of(reply: httpx.Response) -> Spans:
    """The versions that a worker hands over with a JSON reply, or with a stream."""
    streamed = [line for line in reply.text.splitlines() if line.startswith(TOKENS_COMMENT)]
    generations = json.loads(streamed[0].removeprefix(TOKENS_COMMENT)) if streamed else reply.json()["claw_tokens"]
    choices = [choice for generation in generations for choice in generation["choices"]]
    return {str(number): [tuple(span) for span in choice["spans"]] for number, choice in enumerate(choices)}


def changed(base: torch.nn.Module, version: int) -> torch.nn.Module:
    """The weights of a version in these tests, the same in every process."""
    model = copy.deepcopy(base)
    generator = torch.Generator().manual_seed(version)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


def write_published(
    events: Path,
    version: int,
    manifest: WeightsManifest,
    probed: torch.nn.Module,
    offer_url: str | None,
    checkpoint_uri: str | None = None,
) -> None:
    """A line that supervise.py reads; one write, so that a killed trainer leaves all of it or none."""
    event = WeightsPublished(
        envelope=envelope("trainer/test", run_id=RUN),
        model_id="tiny",
        run_id=RUN,
        version=version,
        digest=manifest.digest,
        bytes_total=manifest.bytes_total,
        manifest=tuple(TensorSpec(name=t.name, dtype=t.dtype, shape=t.shape) for t in manifest.tensors),
        offer_url=offer_url,
        checkpoint_uri=checkpoint_uri,
        probe_ids=torch.tensor(PROBE, dtype=torch.int32).numpy().tobytes(),
        probe_logprobs=scores(probed, PROBE).gather(1, torch.tensor(PROBE)[1:, None]).numpy().tobytes(),
    )
    with events.open("a") as out:
        out.write(encode(event).hex() + "\n")


def scores(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    """Log-probabilities [len(ids) - 1, vocabulary] of what follows each id but the last."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].float()
    return torch.log_softmax(logits, -1)[:-1]


def gap(reference: torch.Tensor, ids: list[int], logprobs: list[float]) -> float:
    """max |Δ logp| of these tokens."""
    expected = reference.gather(1, torch.tensor(ids)[:, None])[:, 0]
    return float((torch.tensor(logprobs) - expected).abs().max())


def command_line(process: psutil.Process) -> str:
    """Empty for one that has ended meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one, too
        return ""
