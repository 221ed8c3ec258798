"""A real vLLM for tests that need one but no supervisor, started as our workers start it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
