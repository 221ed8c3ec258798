"""One real engine for the tests of the demo's models."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from claw_r1.claw.demo.verbs.judge import MODEL
from claw_r1.claw.demo.verbs.tiny_model import ensure
from claw_r1.claw.local.ports import free_ports
from tests import children
from tests.models import MODELS


@contextmanager
def served(model: Path, log: Path) -> Iterator[str]:
    """URL of a vLLM that serves a model as the judge, started as our workers start it."""
    from claw_r1.rollout.process.command import arguments, environment
    from claw_r1.rollout.settings import RolloutSettings

    settings = RolloutSettings(model=model, model_id=MODEL, served_name=MODEL, worker_id="w0", kv_cache_bytes="64M")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    env = environment(settings, "for this test only", os.environ)
    with children.serving(arguments(settings, port), f"{url}/health", log, env=env):
        yield url


@pytest.fixture(scope="session")
def policy_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a vLLM with the demo's policy, which can be asked as a judge, too: an untaught one."""
    with served(ensure(MODELS, 0), tmp_path_factory.mktemp("policy") / "log") as url:
        yield url
