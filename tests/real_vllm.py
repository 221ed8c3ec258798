"""A real vLLM for tests that need one but no supervisor, started as our workers start it.

One with a tiny model serves all of them (fixture `vllm`): whatever needs no weights of its own starts no engine of its own.
"""

import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from claw_r1.claw.local.ports import free_ports
from tests import children

SECRET = "for this test only"


@contextmanager
def served(model: Path, name: str, log: Path) -> Iterator[str]:
    """URL of a vLLM that serves a model by this name while the block lasts, from its first healthy answer on. What it says goes to `log`."""
    from claw_r1.rollout.process.command import arguments, environment
    from claw_r1.rollout.settings import RolloutSettings

    settings = RolloutSettings(model=model, model_id=name, served_name=name, worker_id="w0", kv_cache_bytes="64M")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    env = environment(settings, SECRET, os.environ)
    with children.serving(arguments(settings, port), f"{url}/health", log, env=env):
        yield url


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tiny random model."""
    from tests.rollout.tiny_model import make_tiny_model

    folder: Path = tmp_path_factory.mktemp("tiny") / "model"
    make_tiny_model(folder)
    return folder


@pytest.fixture(scope="session")
def vllm(tiny_model: Path) -> Iterator[str]:
    """URL of a vLLM with the project's own command line, plugins and a tiny model; its weights are `run/7`."""
    with served(tiny_model, "policy", tiny_model.with_name("log")) as url:
        label = orjson.dumps({"new_version": "run/7"})
        headers = {"content-type": "application/json", "x-claw-control": SECRET}
        urllib.request.urlopen(urllib.request.Request(f"{url}/update_weight_version", label, headers), timeout=10)
        yield url
