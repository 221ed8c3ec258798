"""Trainer and worker of a stack compute on one device, so that weights leave as they are received."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from claw.errors import CannotRun
from claw.local.settings import UpSettings
from claw.local.stack import Stack, one_device
from claw.local.up import device_of, trainer_settings
from tests.trainer.tiny import make_model
from weights.device import vllm_is_for_cpu

pytestmark = pytest.mark.process

# The real settings and the real engine on a machine where torch says that it sees CUDA.
PRETENDS = """
import sys
import torch
torch.cuda.is_available = lambda: True
from pathlib import Path
from rollout.settings import RolloutSettings
from trainer.compose import learner_of
from trainer.settings import load
chosen = load(["--config", sys.argv[1]])
worker = RolloutSettings(model=chosen.model_dir, model_id=chosen.model_id, worker_id="w")
learner = learner_of(chosen)
print(learner.device.type, "cpu" if worker.runs_on_cpu else "cuda")
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings of a trainer that say nothing of a device."""
    model = make_model(tmp_path / "model")
    given = {"model_dir": str(model), "model_id": "mine", "run_id": "r", "out_dir": str(tmp_path / "out")}
    path = tmp_path / "trainer.yaml"
    path.write_text(yaml.safe_dump(given))
    return path


@pytest.mark.slow
def device(settings: UpSettings) -> str:
    """The device that `claw up` would give its stack."""
    return device_of(settings, trainer_settings(settings))


@pytest.mark.skipif(not vllm_is_for_cpu(), reason="the CPU build of vLLM is not installed")
@pytest.mark.parametrize("who", ["in a stack", "alone"])
def test_a_gpu_beside_the_cpu_build_is_left_alone_by_both(config: Path, who: str) -> None:
    """CUDA's torch comes with the CPU build of vLLM: a trainer on the GPU would offer by NCCL what is awaited by gloo."""
    environment = Stack(run_dir=config.parent, bootstrap="", device=one_device({})).environment()
    done = subprocess.run(
        [sys.executable, "-c", PRETENDS, str(config)],
        env={**os.environ, **(environment if who == "in a stack" else {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == ["cpu", "cpu"], done.stderr[-2000:]


@pytest.mark.parametrize("wish", ["cpu", "cuda"])
def test_every_component_of_a_stack_is_told_the_same(tmp_path: Path, wish: str) -> None:
    """What was resolved once is in the environment of trainer and worker, over whatever stood there."""
    stack = Stack(run_dir=tmp_path, bootstrap="", device=one_device({"--device": wish}, serves=False))
    for component in (stack.trainer(tmp_path / "trainer.yaml"), stack.rollout(tmp_path, "mine")):
        assert (component.env["CLAW_TRAINER_DEVICE"], component.env["CLAW_ROLLOUT_DEVICE"]) == (wish, wish)


def test_auto_is_resolved_by_the_stack() -> None:
    """Places that leave it open do not count; one that names a device does."""
    assert one_device({"--device": "auto", "a file": None}, resolve=lambda wish: {"auto": "cuda"}[wish]) == "cuda"  # type: ignore[arg-type,return-value]
    assert one_device({"--device": "auto", "a file": "cpu"}) == "cpu"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"--device": "cpu", "t.yaml": "cuda"}, "--device says cpu, t.yaml says cuda"),
        ({"--device": "gpu"}, "device gpu: it is one of auto, cpu, cuda"),
    ],
)
def test_contradictions_are_one_line(asked: dict[str, str], says: str) -> None:
    """Two devices of one stack, and a device that is none."""
    with pytest.raises(CannotRun, match=says):
        one_device(asked)


@pytest.mark.skipif(not vllm_is_for_cpu(), reason="the CPU build of vLLM is not installed")
def test_cuda_is_refused_where_the_worker_could_not_follow(config: Path) -> None:
    """A trainer without a worker here may take the GPU: its workers are elsewhere."""
    config.write_text(config.read_text() + "device: cuda\n")
    with pytest.raises(CannotRun, match="CPU build"):
        device(UpSettings(model=config.parent / "model", config=config))
    assert device(UpSettings(config=config)) == "cuda"
