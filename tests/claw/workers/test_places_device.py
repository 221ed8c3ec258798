"""Trainer and workers of a stack need not compute on one device: weights travel through the host's memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.stack import Stack
from claw_r1.claw.workers.places import WorkerPlace, refuse_device
from claw_r1.weights.device import vllm_is_for_cpu
from tests.trainer.tiny import make_model

pytestmark = pytest.mark.process

# The real settings and the real engine on a machine where torch says that it sees CUDA.
PRETENDS = """
import sys
import torch
torch.cuda.is_available = lambda: True
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.trainer.compose import learner_of
from claw_r1.trainer.settings import load
chosen = load(["--config", sys.argv[1]])
worker = RolloutSettings(model=chosen.model_dir, model_id=chosen.model_id, worker_id="w")
learner = learner_of(chosen)
print(learner.device.type, "cpu" if worker.runs_on_cpu else "cuda")
"""


@pytest.mark.slow
@pytest.mark.skipif(not vllm_is_for_cpu(), reason="the CPU build of vLLM is not installed")
def test_a_gpu_beside_the_cpu_build_is_left_alone_unless_it_is_asked_for(tmp_path: Path) -> None:
    """Nobody who has the standard set-up asked for a trainer on the GPU: it would be bf16 beside an engine of fp32."""
    model = make_model(tmp_path / "model")
    fields = {"model_dir": str(model), "model_id": "mine", "run_id": "r", "out_dir": str(tmp_path / "out")}
    config = tmp_path / "trainer.yaml"
    config.write_text(yaml.safe_dump(fields))
    done = subprocess.run(
        [sys.executable, "-c", PRETENDS, str(config)],
        env={**os.environ, **Stack(run_dir=tmp_path, bootstrap="").environment()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == ["cpu", "cpu"], done.stderr[-2000:]


def test_what_is_said_of_a_stack_is_said_to_all_and_auto_leaves_each_its_own(tmp_path: Path) -> None:
    """So CLAW_TRAINER_DEVICE=cuda beside a worker on the CPU stays as it is."""
    for wish, devices in (("cpu", {"cpu"}), ("cuda", {"cuda"}), ("auto", {None})):
        stack = Stack(run_dir=tmp_path, bootstrap="", device=wish)
        for component in (stack.trainer(tmp_path / "t.yaml"), stack.rollout(WorkerPlace(), tmp_path, "mine")):
            named = {component.env.get(f"CLAW_{room}_DEVICE") for room in ("TRAINER", "ROLLOUT")}
            assert named == devices


def test_a_worker_on_cuda_needs_vllm_for_it() -> None:
    """A trainer without a worker here may take the GPU: its workers are elsewhere."""
    for device, gpus in (("cuda", None), ("auto", "0")):
        with pytest.raises(CannotRun, match="CPU build"):
            refuse_device(device, gpus=gpus, for_cpu=lambda: True)
    refuse_device("cuda", for_cpu=lambda: False)
    with pytest.raises(CannotRun, match=r"--workers 2 on CUDA .* --gpus"):
        refuse_device("auto", workers=2, for_cpu=lambda: False, resolve=lambda _: "cuda")
    refuse_device("auto", workers=2, gpus="0,1", for_cpu=lambda: False, resolve=lambda _: "cuda")
    refuse_device("auto", workers=2, for_cpu=lambda: False, resolve=lambda _: "cpu")
    refuse_device("cuda", workers=0, for_cpu=lambda: True)
