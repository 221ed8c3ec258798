"""What a process did not see pass by is read in the log: registrations, rows of groups and of their members."""

from contextlib import closing

import pytest

from claw_r1.consumers.rewards.config import SlotOptions
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects import of_calls
from claw_r1.consumers.rewards.subjects.log_history import FetchedCalls, LogHistory
from claw_r1.consumers.rewards.subjects.of_calls import CallSubjects
from claw_r1.consumers.rewards.subjects.of_rows import RowSubjects
from claw_r1.eventlog.errors import BrokerUnreachable, Retryable
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.topics import CALLS, GROUPS, TRAJECTORIES
from tests import facts
from tests.consumers.rewards.in_memory import add_to, history_of, pooled_log, slot_of
from tests.consumers.rewards.subjects.test_trajectories import dialogue, turn


class RefusingHistory:
    """A log's, that cannot be reached at the first look."""

    def __init__(self, history):
        self.history, self.refusals = history, 1

    def before(self, *at):
        if self.refusals:
            self.refusals -= 1
            raise BrokerUnreachable("restarting")
        return self.history.before(*at)


def calls_from(log, offset, *, history=None):
    """Digests of the calls from an offset on, for a process that got the partition there; an error is tried again."""
    source = CallSubjects(slot_of("call"), history or history_of(log), RewardsSettings())
    name = log.settings.catalogue().name(CALLS)
    for record in log.read_range(CALLS, 0, offset, log.end_offsets([CALLS])[name, 0]):
        try:
            source.add(record)
        except BrokerUnreachable:
            source.add(record)
    return {subject.call_id: subject.digest for subject in source.take()}


@pytest.mark.parametrize("registered", ["trajectory", "group", "neither"])
def test_a_trajectory_that_goes_on_after_a_rebalance_keeps_its_task(registered, monkeypatch):
    """However far back it was registered: the same digest, so the same verdict, in whatever process."""
    monkeypatch.setattr(of_calls, "LOOK_BACK", 2)
    events = {
        "trajectory": [facts.started("g", "t", task="4")],
        "group": [facts.opened("g", task="4"), facts.started("h", "v")],
        "neither": [],
    }[registered]
    log = pooled_log([*events, *dialogue("t"), *dialogue("u", group="h"), turn("t", 9, [], "x", base="t-2")])
    whole = calls_from(log, 0)
    for offset in range(len(events) + 1, len(events) + 8):
        assert calls_from(log, offset).items() <= whole.items()


def test_who_never_registered_is_looked_for_once(monkeypatch):
    """The log is not read back at every call."""
    monkeypatch.setattr(of_calls, "LOOK_BACK", 0)
    log = pooled_log(dialogue("t", tuple("abcdefgh")))
    history, looks = history_of(log), []
    monkeypatch.setattr(CallSubjects, "_earlier", lambda _, at: looks.append(at) or history.before(CALLS, 0, at.offset))
    calls_from(log, 2)
    assert len(looks) == 2, "at the beginning, and for the trajectory"


@pytest.mark.parametrize("goes_on", ["as one member", "with a member that begins late"])
def test_a_group_keeps_its_task_however_many_others_are_registered_meanwhile(goes_on, monkeypatch):
    """As long as it is called it is not crowded out; one that was silent for long is read again where it was opened."""
    monkeypatch.setattr(of_calls, "REGISTRATIONS_MAX", 6)
    others = [facts.started(f"o{number}", f"o{number}") for number in range(12)]
    calls = [turn("t", number, [{"role": "user", "content": "q"}], "x") for number in range(3)]
    late = turn("u", 0, [{"role": "user", "content": "q"}], "x")
    between = {
        "as one member": [calls[0], *others[:4], calls[1], *others[4:8], calls[2], *others[8:]],
        "with a member that begins late": [calls[0], *others, late],
    }[goes_on]
    log = pooled_log([facts.opened("g", task="4", tags=("sums",)), *between])
    source = CallSubjects(slot_of("call", options=SlotOptions(tags=("sums",))), history_of(log), RewardsSettings())
    for record in log.read_range(CALLS, 0, 0, log.end_offsets([CALLS])[log.settings.catalogue().name(CALLS), 0]):
        source.add(record)
    judged = [subject.assemble().task for subject in source.take()]
    assert judged == [4] * sum(event in (*calls, late) for event in between)


def test_a_side_call_is_one_however_many_others_have_tools_meanwhile(monkeypatch):
    """A trajectory that goes on without tools for long is still one that has them."""
    monkeypatch.setattr(of_calls, "REGISTRATIONS_MAX", 4)
    titles = [facts.call("g", "t", f"t-{number}", received_us=number) for number in range(4)]
    others = [facts.call(f"o{number}", f"o{number}", f"o{number}", has_tools=True) for number in range(9)]
    log = pooled_log([facts.call("g", "t", "t", has_tools=True)])
    for number, title in enumerate(titles):
        add_to(log, [title, *others[3 * number : 3 * number + 3]])
    assert not {title.call_id for title in titles} & calls_from(log, 0).keys()


def test_a_look_back_that_failed_is_tried_again():
    """The broker restarts in the moment of a rebalance: the task is not lost."""
    log = pooled_log([facts.started("g", "t", task="4"), *dialogue("t")])
    assert calls_from(log, 1, history=RefusingHistory(history_of(log))) == calls_from(log, 0)


def last_rows(log, topic):
    """The last version of every row, as compaction leaves them."""
    end = log.end_offsets([topic])[log.settings.catalogue().name(topic), 0]
    return list({record.key: record for record in log.read_range(topic, 0, 0, end)}.values())


def test_a_group_waits_for_a_member_whose_row_is_not_to_be_seen_yet():
    """Partitions of one transaction are not seen at one time; nothing else would bring the group again."""
    log = pooled_log([facts.opened("g", expected_size=1), *dialogue("t")])
    late = MemoryLog(log.settings)
    source = RowSubjects(slot_of("group"), history_of(late), FetchedCalls(log.lookup(), 1 << 20), RewardsSettings())
    source.add(last_rows(log, GROUPS)[-1])
    with pytest.raises(Retryable):
        source.take()
    row = last_rows(log, TRAJECTORIES)[-1]
    late.append([Outgoing(topic=TRAJECTORIES, key=row.key, value=row.value, partition=0)])
    assert len(source.take()) == 1


def test_the_row_of_a_group_that_compaction_left_later_is_met():
    """Only its last version is there, and that was written long after the trajectory's."""
    log = pooled_log([facts.opened("g", expected_size=2, task="4"), *dialogue("t"), *dialogue("v", group="h")])
    begin = LogHistory(
        log, begins=history_of(log).begins, offsets_at=lambda topic, _: dict.fromkeys(log.end_offsets([topic]), 0)
    )
    source = RowSubjects(slot_of("trajectory"), begin, FetchedCalls(log.lookup(), 1 << 20), RewardsSettings())
    of_t = [record for record in last_rows(log, TRAJECTORIES) if b"t" in record.key]
    for record in of_t:
        source.add(record)
    (subject,) = source.take()
    assert subject.assemble().task == 4


@pytest.mark.parametrize("scope", ["trajectory", "next", "steps", "group"])
def test_what_was_evicted_since_is_judged_no_more(scope):
    """A scorer that lags behind reads the rows and their tombstones at once; a judge would be paid for nothing."""
    log = pooled_log([*dialogue("t", group="gone"), facts.evicted_group("gone"), *dialogue("t", group="here")])
    source = RowSubjects(slot_of(scope), history_of(log), FetchedCalls(log.lookup(), 1 << 20), RewardsSettings())
    with closing(log.reader(source.topics)) as reader:
        for record in reader.read_to_end():
            source.add(record)
    assert {subject.group_id for subject in source.take()} == ({"here"} if scope != "group" else set())


def test_a_group_without_a_row_is_looked_for_once():
    """Retention took it: no scan of the topic at every poll."""
    log = pooled_log(dialogue("t"))
    rows = last_rows(log, TRAJECTORIES)
    empty, looks = MemoryLog(log.settings), []
    history = LogHistory(
        empty,
        begins=history_of(empty).begins,
        offsets_at=lambda topic, _: looks.append(topic) or empty.end_offsets([topic]),
    )
    source = RowSubjects(slot_of("trajectory"), history, FetchedCalls(log.lookup(), 1 << 20), RewardsSettings())
    for _ in range(3):
        source.add(rows[-1])
        source._judged.clear()
        assert len(source.take()) == 1
    assert len(looks) == 1


def test_a_row_that_nobody_can_read_ends_nothing_where_it_is_looked_up():
    """As where it comes by."""
    log = pooled_log([facts.opened("g", expected_size=1, task="4"), *dialogue("t")])
    broken = MemoryLog(log.settings)
    for topic in (GROUPS, TRAJECTORIES):
        key = last_rows(log, topic)[-1].key
        broken.append([Outgoing(topic=topic, key=key, value=b"\x00nonsense", partition=0)])
    for scope, topic in (("trajectory", TRAJECTORIES), ("group", GROUPS)):
        source = RowSubjects(slot_of(scope), history_of(broken), FetchedCalls(log.lookup(), 1 << 20), RewardsSettings())
        source.add(last_rows(log, topic)[-1])
        assert len(source.take()) == (scope == "trajectory")
