"""When a worker is held to be stalled."""

import time
from typing import Any

import pytest

from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import encode
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS
from claw_r1.streams import lag
from claw_r1.streams.lag import LagWatch, Watchdog
from claw_r1.streams.metrics import StreamsMetrics
from claw_r1.streams.partition.state import PartitionState
from tests import facts


def test_a_watchdog_barks_only_when_facts_wait_and_none_is_folded():
    """Idle is fine, slow is fine, stuck is not."""
    dog = Watchdog(10.0)
    assert not dog.stalled(processed=5, lag=3, now_s=100)
    assert not dog.stalled(processed=5, lag=3, now_s=109)
    assert not dog.stalled(processed=6, lag=300, now_s=110)
    assert not dog.stalled(processed=6, lag=0, now_s=200)
    assert not dog.stalled(processed=6, lag=1, now_s=209)
    assert dog.stalled(processed=6, lag=1, now_s=210)


def test_a_worker_without_partitions_shows_no_lag_and_is_watched_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts of the whole group wait: that is no fault of this worker's metrics, and a reason for it to start anew."""
    settings, metrics = LogSettings(partitions=1), StreamsMetrics()
    ends: dict[Any, int] = {(settings.catalogue().name(topic), 0): 7 for topic in lag.FACTS}
    monkeypatch.setattr(lag, "end_offsets", lambda *_: ends)
    monkeypatch.setattr(lag, "committed_offsets", lambda *_: dict.fromkeys(ends))
    watch = LagWatch(settings, 0.0, metrics)
    assert watch.stall({}) == f"{7 * len(lag.FACTS)} facts wait and none was folded for 0.0 s"
    assert metrics.registry.get_sample_value("claw_streams_lag") == 0


def test_a_worker_that_works_is_not_stalled_though_no_position_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Kafka delivers again after it forgot the group is folded again, and a takeover folds nothing: neither ends a worker."""
    settings = LogSettings(partitions=1)
    name, stall_s = settings.catalogue().name(CALLS), 0.05
    monkeypatch.setattr(lag, "end_offsets", lambda *_: {(name, 0): 9})
    state, record = PartitionState(0, 1), Record(name, 0, 3, 0, group_key("g"), encode(facts.call("g", "t", "c")))
    state.apply(record)
    watch = LagWatch(settings, stall_s, StreamsMetrics())
    assert watch.stall({0: state}) is None
    for _ in range(2):
        time.sleep(stall_s)
        state.apply(record)
        assert watch.stall({0: state}) is None
    time.sleep(stall_s)
    assert watch.stall({0: state}, at_work=True) is None
    time.sleep(stall_s)
    assert watch.stall({0: state}) == f"5 facts wait and none was folded for {stall_s} s"
