"""Fixtures that every room's tests share."""

import pytest
from hypothesis import HealthCheck, settings

from tests.broker import broker, catalogue, killable_broker, local_broker, local_log, log_settings
from tests.scheduling import first, pytest_runtest_protocol, pytest_xdist_make_scheduler

__all__ = [
    "broker",
    "catalogue",
    "killable_broker",
    "local_broker",
    "local_log",
    "log_settings",
    "pytest_runtest_protocol",
    "pytest_xdist_make_scheduler",
]

# The machines are shared: how long one example takes says nothing about the code.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first: whoever runs files side by side (`make test`) must not end with one of them."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: first(item, item.path in slow))
