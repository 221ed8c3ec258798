"""Fixtures that every room's tests share."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.assertion_rewriting import rewrite_share
from tests.broker import broker, catalogue, killable_broker, local_broker, local_log, log_settings
from tests.real_vllm import tiny_model, vllm
from tests.scheduling import first, pytest_runtest_protocol, pytest_xdist_make_scheduler
from tests.soak import SOAK

__all__ = [
    "broker",
    "catalogue",
    "killable_broker",
    "local_broker",
    "local_log",
    "log_settings",
    "pytest_runtest_protocol",
    "pytest_xdist_make_scheduler",
    "tiny_model",
    "vllm",
]

# Before anything loads torch, which reads it once: two threads of one test wait for each other, spinning, whenever a core is taken.
os.environ["OMP_NUM_THREADS"] = "1"
# The machines are shared: how long one example takes says nothing about the code.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25)
settings.register_profile("soak", settings.get_profile("house"), max_examples=200)
settings.load_profile("soak" if SOAK else "house")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first: whoever runs files side by side (`make test`) must not end with one of them."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.soak)  # with many more examples
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: first(item, item.path in slow))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Nothing that collecting tests loads is garbage: looked for all the same, it took a third of the time.

    What is loaded by now stays: DeepSpeed collects garbage some five times per engine, through all of it each time.
    """
    gc.disable()
    try:
        rewrite_share(session.config, Path(__file__).parent)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _own_priority() -> Iterator[None]:
    """A test that makes its process nicer takes the processor from all tests after it, which then fail for want of time."""
    before = os.nice(0)
    yield
    assert os.nice(0) == before
