"""`make gpu-check` where no GPU is: it says so, its parts are no dead code, and what it runs is light."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.gpu_check import parts, work
from bench.gpu_check.__main__ import OLDEST, checked, main, numbers
from bench.gpu_check.parts import PARTS, Failed, Ground
from bench.models import Shape
from tests.soak import in_soak

pytestmark = pytest.mark.process
TINY = Shape(vocabulary=128, width=32, layers=2, heads=2, kv_heads=1, head_width=16, mlp_width=64)
SMALL = {"copy_bytes": 1 << 20, "versions": 3}
LARGE_JOB = {"groups": 2, "members": 2, "prompt": 16, "response": 16, "micro_batch_tokens_max": 128}
LIGHT = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import claw_r1.trainer.learn.engine, claw_r1.trainer.learn.learner, claw_r1.trainer.ranks.memory, claw_r1.weights.host_copies, claw_r1.weights.sources, claw_r1.weights.checkpoint
import bench.gpu_check.__main__, bench.gpu_check.work
"""
IN_SOAK = ("bf16", "worker")
"""Parts that need an engine of their own or half a minute."""
ABSENT = (
    "confluent_kafka,fastavro,structlog,msgspec,orjson,pydantic_settings,prometheus_client,typer,rich,"
    "aiohttp,aiokafka,faust,vllm,pyarrow,matplotlib,pytest"
)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(folder=tmp_path, device="cpu", small=TINY, large=TINY, large_job=LARGE_JOB, run=work.run, **SMALL)


@pytest.mark.parametrize("name", [in_soak(name) if name in IN_SOAK else name for name in PARTS])
@pytest.mark.slow
def test_each_part_runs_on_a_cpu_at_a_small_size(name: str, ground: Ground) -> None:
    """The code that a GPU runs once a month runs here with every change: device cpu against cpu."""
    result = checked(name, ground)
    assert result["status"] == "ok", result
    assert result.get("estimated_bytes", 1) > 0


def test_a_part_that_is_wrong_fails_and_says_by_how_much(ground: Ground) -> None:
    """Another learning rate on one side is no equal training; what breaks is a failure too, and never an exception."""
    figures = {"weight_difference": float("nan")}
    with pytest.raises(Failed, match=r"at most 0\.0001"):
        parts._at_most(figures, "weight_difference", 1e-4)

    def lost(job: work.Job) -> work.Outcome:
        raise RuntimeError("device lost")

    assert checked("fp32", replace(ground, run=lost))["reason"] == "RuntimeError: device lost"


def test_a_job_runs_in_a_process_of_its_own(ground: Ground) -> None:
    """As on a GPU, where each device and precision needs one."""
    job = ground.job(steps=1)
    assert parts.run_apart(job).losses == work.run(job).losses
    with pytest.raises(Failed, match="ModelInvalid"):
        parts.run_apart(replace(job, model_dir=str(ground.folder / "nothing")))


def test_versions_are_compared_as_numbers() -> None:
    """2.9 is older than 2.11, and a local build is what it is a build of."""
    assert numbers("2.9.1+cu130") < OLDEST["torch"] <= numbers("2.11.0a0+git")


def test_without_a_gpu_every_part_is_skipped_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, one JSON object."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert main(["--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {name: part["status"] for name, part in answer["parts"].items()} == dict.fromkeys(PARTS, "skipped")
    assert all("CUDA" in part["reason"] for part in answer["parts"].values())


def test_what_the_check_imports_is_there_on_a_machine_with_torch_alone() -> None:
    """Neither Kafka nor Avro nor logs nor any other package of the data layer is imported on the way to the engine."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, ABSENT], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
