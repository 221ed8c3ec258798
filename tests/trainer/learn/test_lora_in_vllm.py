"""The adapter of an export in the engine that it is for."""

import json
import os
import subprocess
import sys

import pytest

from claw_r1.trainer.learn.engine import EngineSettings, TrainingEngine
from claw_r1.trainer.sections.lora import LoraSettings
from claw_r1.weights.snapshot import WeightsSnapshot
from tests.children import HEAVY_START_S
from tests.rollout.tiny_model import make_tiny_model
from tests.soak import only_in_soak
from tests.trainer.learn.test_engine import HOW, batch

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
