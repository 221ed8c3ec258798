"""Fixtures of the gateway's tests."""

from collections.abc import Iterator

import pytest

from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import House
from tests.gateway.packed import CAPABILITIES
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
        running.worker(engine.url, capabilities=CAPABILITIES)
        yield running
