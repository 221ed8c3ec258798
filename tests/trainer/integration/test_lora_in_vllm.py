"""Adapters in the engine that they are for: that of an export, and those of a run, live."""

import copy
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from claw_r1.schemas.codec import encode
from claw_r1.trainer.config.lora import LoraSettings
from claw_r1.trainer.learn.engine import EngineSettings, TrainingEngine
from claw_r1.trainer.versions.publication import Candidate, Publisher
from claw_r1.weights.snapshot import Snapshots, WeightsSnapshot
from tests.children import HEAVY_START_S
from tests.patience import until
from tests.rollout.tiny_model import make_tiny_model
from tests.rollout.worker import PROBE as WORKER_PROBE
from tests.rollout.worker import RUN, Worker, gap, spans_of
from tests.soak import only_in_soak
from tests.trainer.learn.tiny_engine import HOW, batch

pytestmark = pytest.mark.vllm
PROBE = (3, 1, 4, 1, 5, 9, 2, 6)
SCORES = """
import json, sys
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

if __name__ == "__main__":
    base, adapter, ids = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    engine = LLM(model=base, enable_lora=True, max_lora_rank=8, dtype="float32", enforce_eager=True, max_model_len=64)
    asked = SamplingParams(max_tokens=1, prompt_logprobs=0)
    request = LoRARequest("run/1", 1, adapter)
    [answer] = engine.generate([{"prompt_token_ids": ids}], asked, lora_request=request)
    scores = [answer.prompt_logprobs[at][ids[at]].logprob for at in range(1, len(ids))]
    with open(sys.argv[4], "w") as file:  # vLLM's processes write to stdout, too
        json.dump(scores, file)
"""


@only_in_soak
def test_vllm_says_of_an_adapter_what_the_trainer_says(tmp_path):
    """Base and adapter, each from its directory, without anything of ours in between."""
    base = tmp_path / "base"
    make_tiny_model(base)
    subject = TrainingEngine(base, EngineSettings(learning_rate=1e-2, lora=LoraSettings(rank=8)))
    before = subject.logprobs(PROBE)
    subject.train(batch(0), **HOW)
    subject.export(WeightsSnapshot.of(subject.named_tensors()), tmp_path / "hf", subject.adapter_tensors())
    (tmp_path / "scores.py").write_text(SCORES)
    words = [
        str(tmp_path / "scores.py"),
        str(base),
        str(tmp_path / "hf" / "adapter"),
        json.dumps(PROBE),
        str(tmp_path / "scores"),
    ]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1"}
    subprocess.run([sys.executable, *words], env=environment, timeout=HEAVY_START_S, check=True)
    scores = json.loads((tmp_path / "scores").read_text())
    assert scores == pytest.approx(subject.logprobs(PROBE).tolist(), abs=1e-4)
    assert scores != pytest.approx(before.tolist(), abs=1e-2)


class LiveRun:
    """A trainer that publishes what it has learned to a worker that takes adapters."""

    def __init__(self, base: Path, folder: Path, served: Path | None = None, **settings: object) -> None:
        """served: the worker's model, where it is another than the run's. settings: of the worker."""
        lora = LoraSettings(rank=4, learning_rate=3e-2)
        self.policy = TrainingEngine(base, EngineSettings(learning_rate=3e-2, lora=lora))
        self.worker = Worker(served or base, folder, lora_rank_max=4, **settings)
        self.version = -1
        self.publisher = Publisher(
            weights=self.policy,
            transfer_server=self.worker.transfer_server,
            exports=folder / "hf",
            run_id=RUN,
            model_id="tiny",
            epoch="e",
            producer="trainer/test",
            exports_kept=1,
            snapshots=Snapshots(),
            adapter_snapshots=Snapshots(),
            lora=lora,
            probe_ids=tuple(WORKER_PROBE),
        )

    def candidate(self, version: int) -> Candidate:
        """The weights as they are, for `announce`."""
        weights = copy.deepcopy(self.worker.base)
        weights.load_state_dict(dict(self.policy.named_tensors()), strict=False)
        self.worker.versions[version] = weights
        return self.publisher.candidate()

    def announce(self, candidate: Candidate) -> None:
        """It becomes the next version."""
        self.version += 1
        self.publisher.stage(self.version, candidate)
        event = self.publisher.event(self.version, candidate, None, None)
        with self.worker.events.open("a") as events:
            events.write(encode(event).hex() + "\n")

    def publish(self, candidate: Candidate) -> None:
        """The same; it is served when this returns."""
        self.announce(candidate)
        self.worker.wait_ready(self.version, HEAVY_START_S)
        self.publisher.settle(self.version)


@only_in_soak
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_version_is_an_adapter_whose_tokens_are_exact(tmp_path, ranks):
    """Published live, while replies run: each token has the log-probability that the merged weights of its span's version give it,
    the probe agrees, what came is a fraction of the version, and an engine that is started again serves the newest."""
    make_tiny_model(tmp_path / "base", kv_heads=2)
    run = LiveRun(tmp_path / "base", tmp_path, tensor_parallel=ranks)
    worker = run.worker
    try:
        run.publish(run.candidate(0))
        candidates = []  # made before there are replies, which would be over by then
        for version in (1, 2, 3):
            run.policy.train(batch(version), **HOW)
            candidates.append(run.candidate(version))
        assert worker.label() == f"{RUN}/0"
        assert worker.greedy_gap(0) <= 1e-4
        with ThreadPoolExecutor(4) as pool:
            long = {"max_tokens": 1500, "temperature": 1.0, "ignore_eos": True}
            replies = [pool.submit(worker.chat, seed=seed, **long) for seed in range(4)]
            until(lambda: worker.http.get(f"{worker.url}/claw/info").json()["in_flight"] == 4, "four in flight")
            for candidate in candidates:
                run.publish(candidate)
        labels = set()
        for reply in (future.result() for future in replies):
            body = reply.json()
            prompt, ids = body["prompt_token_ids"], body["choices"][0]["token_ids"]
            logprobs = [entry["logprob"] for entry in body["choices"][0]["logprobs"]["content"]]
            for label, start, end in spans_of(reply)["0"]:
                reference = worker.reference(int(label.split("/")[1]), prompt, ids)[start:end]
                assert gap(reference, ids[start:end], logprobs[start:end]) <= 1e-4
                labels.add(label)
        assert len(labels) >= 3, labels
        assert worker.greedy_gap(3) <= 1e-4
        assert worker.greedy_gap(0) > 1e-2, "the versions do not differ"
        times_ms = worker.last_sync_ms()
        assert times_ms["probe_gap"] <= 1e-4
        worker.engine_core().kill()
        until(lambda: worker.states()[-1] == "starting", "the engine's end is seen")
        worker.wait_ready(3, HEAVY_START_S)
        assert worker.greedy_gap(3) <= 1e-4
    finally:
        worker.close()


@only_in_soak
def test_an_adapter_of_another_model_is_given_up(tmp_path):
    """The engine that computes with it is not the trainer's: its probe says so, and no call is answered by it."""
    make_tiny_model(tmp_path / "base")
    make_tiny_model(tmp_path / "other")
    weights = load_file(tmp_path / "other" / "model.safetensors")
    save_file(
        {name: 1.01 * tensor for name, tensor in weights.items()},
        tmp_path / "other" / "model.safetensors",
        {"format": "pt"},
    )
    run = LiveRun(tmp_path / "base", tmp_path, tmp_path / "other")
    try:
        run.announce(run.candidate(0))
        until(
            lambda: run.worker.report_with("is given up", since=0), "the version is given up", patience_s=HEAVY_START_S
        )
        detail = run.worker.report_with("is given up", since=0)["detail"]
        assert "its probe is" in detail
        assert "ready" not in run.worker.states()
    finally:
        run.worker.close()
