"""The checks of the log: functions of what the broker says."""

from typing import Any

import pytest

from claw_r1.claw.show.doctor.log import clocks, fold, keys, pool, replication, retention, topics, version
from claw_r1.datapool import FOLD_VERSION
from claw_r1.eventlog.kafka.admin import TopicState
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import KeyRecorded, StreamPosition, WorkerReported


def state(replication: int, insync: int) -> TopicState:
    return TopicState("claw.calls", 8, replication, {}, {}, {}, insync)


@pytest.mark.parametrize(
    ("replicas", "insync", "found"), [(1, 1, "warning"), (2, 2, "warning"), (3, 1, "error"), (3, 2, "ok"), (5, 3, "ok")]
)
def test_replicas_hold_what_was_acknowledged_or_it_is_an_error(replicas: int, insync: int, found: str) -> None:
    """Three with two in sync hold; one is a local stack's; of two nothing is lost, and one broker stops all; the weak topic is named."""
    finding = replication([state(3, 2), state(replicas, insync)], 1)
    assert finding.severity == found
    assert found != "error" or "claw.calls" in finding.says


def test_a_pool_behind_its_facts_is_a_matter_of_how_far() -> None:
    """Never read is an error, far behind a warning, a little is how it always is; a partition without a commit counts whole."""
    spans = {("claw.calls", 0): (0, 9000), ("claw.calls", 1): (0, 10)}
    assert pool(spans, {("claw.calls", 0): None, ("claw.calls", 1): None}).severity == "error"
    assert pool(spans, {("claw.calls", 0): None, ("claw.calls", 1): 10}).severity == "warning"
    assert pool(spans, {("claw.calls", 0): 8990, ("claw.calls", 1): 10}).says == "10 facts behind"
    assert pool(spans, {("claw.rewards", 0): None}).severity == "ok", "a topic that is not there is another check's"
    removed = {("claw.calls", 0): (8980, 9000)}
    assert pool(removed, {("claw.calls", 0): 8000}).says == "20 facts behind", "nobody can fold what retention took"
    assert pool({("claw.calls", 0): (0, 0)}, {("claw.calls", 0): None}).severity == "ok"


def key(name: str, **fields: Any) -> KeyRecorded:  # Any: fields of the event
    return KeyRecorded(envelope=envelope("test"), name=name, role="agent", digest="0" * 64, **fields)


def test_keys_that_never_end_are_named() -> None:
    """Those that are over or revoked harm nobody."""
    assert keys([], 5).severity == "ok"
    assert (
        keys([key("a", expires_us=9), key("b", revoked=True), key("c", expires_us=None, revoked=True)], 5).severity
        == "ok"
    )
    finding = keys([key("a", expires_us=9), key("old", expires_us=2), key("endless")], 5)
    assert (finding.severity, "endless" in finding.says, "old" in finding.says) == ("warning", True, False)


def test_a_clock_that_is_ahead_names_its_writer() -> None:
    """What comes from the future; old events say nothing, since their writer may have ended."""

    def report(worker: str, at_us: int) -> WorkerReported:
        stamp = envelope("test")
        stamp = type(stamp)(event_id=stamp.event_id, occurred_at_us=at_us, producer=f"rollout/{worker}")
        fields: dict[str, Any] = {
            "url": "",
            "model_id": "m",
            "model": "m",
            "state": "ready",
            "in_flight": 0,
        }  # Any: as above
        return WorkerReported(envelope=stamp, worker_id=worker, report_interval_s=2.0, **fields)

    now_us = 1_000_000_000
    assert clocks([], now_us).severity == "ok"
    assert clocks([report("w0", 0), report("w1", now_us + 1_000_000)], now_us).severity == "ok"
    finding = clocks([report("w0", 0), report("w1", now_us + 30_000_000)], now_us)
    assert (finding.severity, "rollout/w1 wrote 30 s from now" in finding.says) == ("error", True)


def test_fewer_replicas_than_the_settings_promise_are_an_error() -> None:
    """One replica is a local stack's only where nobody asked for more."""
    assert replication([state(1, 1)], 3).severity == "error"
    assert replication([state(3, 2)], 3).severity == "ok"
    assert replication([state(3, 2)], 5).severity == "error"


def test_a_broker_older_than_the_tests_know_is_said() -> None:
    """Kafka 3 says its version by a setting that Kafka 4 no longer has."""
    assert version({}).severity == "ok"
    assert version({"inter.broker.protocol.version": "3.9-IV0"}).severity == "warning"


def test_a_retention_that_ends_is_an_error_of_its_own() -> None:
    """By time or by size; whatever else differs from the catalogue is a finding of the topics."""

    def kept(**units: str) -> TopicState:
        return TopicState("claw.calls", 8, 1, {}, {}, {f"retention.{unit}": value for unit, value in units.items()}, 1)

    assert retention([kept(), kept(ms="-1", bytes="-1")]).severity == "ok"
    assert retention([kept(ms="3600000", bytes="-1")]).severity == "error"
    assert "--topic claw.calls" in retention([kept(ms="-1", bytes="5")]).remedy
    lines = ["claw.a: missing; create", "claw.b: retention.ms is 5, …", "claw.c: delete.retention.ms is 5, …"]
    assert topics(lines).says == "2 differ, such as claw.a: missing; create"
    assert topics(lines[1:2]).severity == "ok"


def test_a_pool_of_other_folds_is_an_error() -> None:
    """One of several positions is enough; other events say nothing of it."""
    here = StreamPosition(partition=0, offsets={}, fold_version=FOLD_VERSION, updated_at_us=0)
    there = StreamPosition(partition=1, offsets={}, fold_version=FOLD_VERSION - 1, updated_at_us=0)
    assert fold([]).severity == fold([here, key("k")]).severity == "ok"
    assert (fold([here, there]).severity, "claw rebuild" in fold([there]).remedy) == ("error", True)
