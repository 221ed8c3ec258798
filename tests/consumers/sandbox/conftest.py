"""Fixtures of the sandbox's tests."""

from collections.abc import Iterator

import pytest

from claw_r1.consumers.sandbox.sandbox import Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """One for all tests of a file: what an attack or a forgery leaves would meet the next."""
    with Sandbox() as sandbox:
        yield sandbox
