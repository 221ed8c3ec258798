"""Fixtures that every room's tests share."""

from hypothesis import HealthCheck, settings

from tests.broker import broker, catalogue, local_broker, log_settings

__all__ = ["broker", "catalogue", "local_broker", "log_settings"]

# The machines are shared: how long one example takes says nothing about the code.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")
