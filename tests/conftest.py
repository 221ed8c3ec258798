"""Fixtures that every room's tests share."""

from tests.broker import broker, catalogue, local_broker, log_settings

__all__ = ["broker", "catalogue", "local_broker", "log_settings"]
