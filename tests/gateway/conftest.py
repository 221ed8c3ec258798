"""Fixtures of the gateway's tests; their real vLLM is that of `tests/real_vllm.py`."""

from collections.abc import Iterator

import pytest

from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import House
from tests.gateway.speaking import answer


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    """A scripted engine on a free port."""
    with ScriptedEngine() as running:
        yield running


@pytest.fixture(scope="module")
def hardened() -> Iterator[House]:
    """A gateway that lives through all bad input of a module, as one must."""
    with ScriptedEngine() as scripted, House() as running:
        running.worker(scripted.url)
        yield running


@pytest.fixture
def house(engine: ScriptedEngine) -> Iterator[House]:
    """A gateway with the scripted engine as its only worker."""
    with House() as running:
        running.worker(engine.url)
        yield running


@pytest.fixture
def speaking_house(engine: ScriptedEngine) -> Iterator[House]:
    """A gateway whose only worker speaks every protocol, and hands its tokens over."""
    engine.default = answer
    with House() as running:
        running.worker(engine.url)
        yield running


@pytest.fixture
def real(vllm: str) -> Iterator[House]:
    """A gateway with the real engine as its worker."""
    with House() as running:
        running.worker(vllm, model="policy")
        yield running
