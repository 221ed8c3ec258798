"""A real vLLM whose tokens come packed."""

from collections.abc import Iterator

import pytest

from tests.gateway.house import House
from tests.gateway.openai.conftest import tiny_model, vllm  # noqa: F401  # fixtures
from tests.gateway.packed import CAPABILITIES


@pytest.fixture
def packing(vllm: str) -> Iterator[House]:  # noqa: F811  # the fixture
    """A gateway with the real engine as its worker."""
    with House() as running:
        running.worker(vllm, model="policy", capabilities=CAPABILITIES)
        yield running
