"""Which ranges of a topic are read to find positions, and by which client."""

import itertools
from pathlib import Path

import pytest

from claw_r1.eventlog.kafka.ranges import FactLookup, sweeps
from claw_r1.eventlog.records import Position
from claw_r1.eventlog.security import LOOK_S, SecretsWatch
from claw_r1.eventlog.settings import LogSettings


def test_sweeps_cover_every_position_and_read_neighbours_together() -> None:
    """Positions close together share a range, far ones get their own round, and partitions are read side by side."""
    near = [Position("t", 0, 5), Position("t", 0, 90), Position("t", 1, 7)]
    far = [Position("t", 0, 100_000)]
    assert sweeps([*far, *near]) == [{("t", 0): (5, 91), ("t", 1): (7, 8)}, {("t", 0): (100_000, 100_001)}]
    assert sweeps([]) == []


def test_a_look_up_goes_on_with_a_new_client_once_its_secrets_changed(tmp_path: Path) -> None:
    """Its client knows the password of its start alone: a lookup that lives as long as its process makes another."""
    password = tmp_path / "password"
    password.write_text("old")
    settings = LogSettings(
        bootstrap_servers="127.0.0.1:1",
        security_protocol="SASL_PLAINTEXT",
        security_username="u",
        security_password_file=password,
    )
    looks = itertools.count(step=LOOK_S + 1)
    lookup = FactLookup(settings, SecretsWatch(settings, clock=lambda: next(looks)))
    try:
        lookup.get([])
        former = lookup._reader
        lookup.get([])
        assert lookup._reader is former
        password.write_text("new")
        lookup.get([])
        assert lookup._reader is not former
        with pytest.raises(RuntimeError, match="closed"):
            former._consumer.assignment()
    finally:
        lookup.close()
