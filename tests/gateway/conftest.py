"""Fixtures of the gateway's tests; of a real vLLM there is one for all of them."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.engines import SECRET, served
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


@pytest.fixture
def real(vllm: str) -> Iterator[House]:
    """A gateway with the real engine as its worker."""
    with House() as running:
        running.worker(vllm, model="policy")
        yield running
