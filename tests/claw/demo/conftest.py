"""One real engine for the tests of the demo's models."""

from collections.abc import Iterator

import pytest

from claw_r1.claw.demo.verbs.judge import MODEL
from claw_r1.claw.demo.verbs.tiny_model import ensure
from tests.caches import CACHE
from tests.real_vllm import served


@pytest.fixture(scope="session")
def policy_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a vLLM with the demo's policy, which can be asked as a judge, too: an untaught one."""
    with served(ensure(CACHE / "models", 0), MODEL, tmp_path_factory.mktemp("policy") / "log") as url:
        yield url
