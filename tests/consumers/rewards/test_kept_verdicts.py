"""What an owner reads of its partition when it gets it."""

import threading
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from claw_r1.consumers.rewards import kept_verdicts as module
from claw_r1.consumers.rewards.kept_verdicts import Verdicts
from claw_r1.eventlog.errors import BrokerUnreachable
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.topics import VERDICTS
from tests.consumers.published import episode
from tests.consumers.rewards.in_memory import SETTINGS, add_to, judge_all, pooled_log, slot_of, verdicts

MARKS = 5


class SlowLog(MemoryLog):
    """Hands out one record per poll; each takes a second of a clock that nobody else has."""

    now_s = 0.0

    def reader(self, topics, **options):
        reader = super().reader(topics, **options)
        poll, ahead = reader.poll, []
        positions = reader.positions

        def one(timeout_s):
            self.now_s += 1.0
            if not ahead:
                ahead.extend(poll(timeout_s))
            return [ahead.pop(0)] if ahead else []

        reader.poll = one
        reader.positions = lambda: {
            place: ahead[0].offset if ahead else offset for place, offset in positions().items()
        }
        return reader


@pytest.fixture
def slow_log(monkeypatch):
    log = SlowLog(SETTINGS)
    log.append([Outgoing.tombstone(VERDICTS, b"%d" % at, 0) for at in range(MARKS)])
    monkeypatch.setattr(module.time, "monotonic", lambda: log.now_s)
    monkeypatch.setattr(module, "RESTORE_TIMEOUT_S", 2.5)
    return log


def test_a_long_restore_may_take_longer_than_the_limit_as_long_as_it_goes_on(slow_log):
    """The limit is for standing still: a million verdicts are no reason to fail at every start."""
    verdicts = Verdicts(slow_log, slot_of("call"))
    verdicts.own(0)
    assert slow_log.now_s > 2.5


def test_a_restore_ends_at_a_stop(slow_log):
    """Who is asked to stop does not read on."""
    stop = threading.Event()
    stop.set()
    with pytest.raises(BrokerUnreachable):
        Verdicts(slow_log, slot_of("call"), stop=stop).own(0)


def test_other_settings_under_one_slot_and_version_are_named():
    """Two processes with different files, or a rubric that was edited: one line with both digests, and what to do."""
    log = pooled_log([*episode("a", "t", None), *episode("b", "t", None, calls=1)])
    judge_all(log, replace(slot_of("trajectory"), digest="a" * 64), lambda _: (1.0,))
    assert {verdict.settings_digest for verdict in verdicts(log)} == {"a" * 64}
    add_to(log, episode("c", "t", None, calls=3))
    for later, warned in (({}, True), ({"generation": 1}, True), ({"version": 2}, False)):
        with capture_logs() as lines:
            judge_all(log, replace(slot_of("trajectory", **later), digest="b" * 64), lambda _: (1.0,))
        words = [line for line in lines if line["event"] == "rewards_other_settings"]
        assert len(words) == warned
        for line in words:
            assert (line["slot"], line["settings"], line["others"]) == ("rule/trajectory@1", "b" * 12, "a" * 12)
            assert "raise version" in line["advice"]
