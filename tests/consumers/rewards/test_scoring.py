"""One verdict per content, kept before it is published; every answer that is no verdict is a word."""

import math
from contextlib import closing

import pytest
from msgspec import structs

from claw_r1.consumers.rewards.config import SlotOptions
from claw_r1.consumers.rewards.scorer import GaveUp, Opinion
from claw_r1.eventlog.errors import Fenced, NotAcknowledged
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.runtime.monitoring.tracing import traced
from claw_r1.schemas.events import CallCaptured, RewardAssigned, ScoringFailed
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import GROUPS, TRAJECTORIES, VERDICTS
from tests import facts
from tests.consumers.published import episode
from tests.consumers.rewards.in_memory import (
    SETTINGS,
    FunctionScorer,
    add_to,
    engine,
    judge_all,
    pooled_log,
    slot_of,
    slots,
    verdicts,
    words,
)
from tests.otlp_receiver import Receiver

ROW_TOPICS = (TRAJECTORIES, GROUPS)


def one(judged):
    return (1.0,) * judged.answers


def test_equal_content_is_judged_once_and_the_second_reward_says_so():
    """Two trajectories of equal words: one question, one cost, two rewards."""
    log = pooled_log([*episode("a", "t", None), *episode("b", "t", None)])
    scorer = judge_all(log, slot_of("trajectory"), one)
    assert len(scorer.views) == 1
    assert [(event.group_id, event.verdict.cached, event.verdict.tokens) for event in words(log)] == [
        ("a", False, 10),
        ("b", True, 0),
    ]


def test_equal_content_of_another_partition_is_asked_about_again():
    """The questions are a function of the log, not of who has which partitions: one process for all of them, or two in turn."""
    names = {partition_of(group_key(name), 2): name for name in "abcdefgh"}
    views = []
    for together in (True, False):
        log = MemoryLog(SETTINGS.model_copy(update={"partitions": 2}))
        add_to(log, episode(names[0], "t", None))
        views += [] if together else judge_all(log, slot_of("trajectory"), one).views
        add_to(log, episode(names[1], "t", None))
        views += judge_all(log, slot_of("trajectory"), one).views
        assert [(event.verdict.cached, event.verdict.tokens) for event in words(log)] == [(False, 10)] * 2
    assert sorted(view.group_id for view in views) == sorted([*names.values()] * 2)


def test_an_idle_slot_holds_its_partitions_until_it_leaves():
    """The metric is of what the group gave it, not of what it judged: a slot with nothing to judge is no idle one."""
    log, slot = MemoryLog(SETTINGS.model_copy(update={"partitions": 2})), slot_of("trajectory")
    scoring = engine(log, slot, FunctionScorer(one))

    def held():
        return scoring._metrics.registry.get_sample_value("claw_rewards_partitions", {"slot": slot.name})

    scoring.hold({(topic, partition) for topic in ("a", "b") for partition in (0, 1)})
    assert (scoring.rest(), held()) == ([], 2)
    scoring.close()
    assert held() == 0


def test_a_scorer_that_depends_on_more_than_content_is_asked_about_each():
    """`pure: false`."""
    log = pooled_log([*episode("a", "t", None), *episode("b", "t", None)])
    assert len(judge_all(log, slot_of("trajectory", pure=False), one).views) == 2


def test_a_verdict_that_was_kept_is_published_and_never_asked_for_again():
    """Killed between keeping and publishing: the next one makes the same event of what was kept."""
    log = pooled_log(episode("a", "t", None))
    slot = slot_of("trajectory")
    first = judge_all(log, slot, lambda _: (0.25,))
    log.commit_offsets(slot.group_id("claw"), dict.fromkeys(log.end_offsets(ROW_TOPICS), 0))
    second = judge_all(log, slot, lambda _: (0.75,))
    assert (len(first.views), len(second.views)) == (1, 0)
    assert {event.value for event in words(log)} == {0.25}
    assert len({event.envelope.event_id for event in words(log)}) == 1
    assert words(log)[0] == words(log)[-1]


def test_another_version_and_another_generation_are_verdicts_of_their_own():
    """Each is asked, and the higher one counts: generation before version."""
    log = pooled_log(episode("a", "t", None))
    for value, slot in (
        (0.1, slot_of("trajectory")),
        (0.2, slot_of("trajectory", generation=1)),
        (0.3, slot_of("trajectory", version=2)),
    ):
        log.commit_offsets(slot.group_id("claw"), dict.fromkeys(log.end_offsets(ROW_TOPICS), 0))
        judge_all(log, slot, lambda _, value=value: (value,))
    assert sorted(event.value for event in words(log)) == [0.1, 0.2, 0.3]
    assert slots(log) == {("a", "t", None): 0.2}
    ranks = {event.value: event.revision for event in words(log)}
    assert ranks[0.1] < ranks[0.3] < 1000 <= ranks[0.2]


ANSWERS = {
    "nan": ((math.nan,), "not_finite"),
    "infinity": ((math.inf,), "not_finite"),
    "two": ((1.0, 2.0), "wrong_length"),
    "no value": ((), "wrong_length"),
    "a string": (("1",), "not_a_number"),
    "a bool": ((True,), "not_a_number"),
    "too large": ((-2e30,), "number_too_large"),
    "an endless int": ((10**400,), "number_too_large"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_is_no_number_fails_with_a_word(answer):
    """It claims the slot, and its cost is kept."""
    values, word = ANSWERS[answer]
    log = pooled_log(episode("a", "t", None))
    judge_all(log, slot_of("trajectory"), lambda _: Opinion(values=values, tokens=7))
    (event,) = words(log)
    assert isinstance(event, ScoringFailed)
    assert (event.reason, event.verdict.tokens) == (word, 7)


def test_nothing_to_say_is_published_and_is_not_asked_again():
    """None: whoever requires the slot need not wait for it, and it has no value."""
    log = pooled_log(episode("a", "t", None))
    slot = slot_of("trajectory")
    judge_all(log, slot, lambda _: (None,))
    assert [(event.value, event.verdict is not None) for event in words(log)] == [(None, True)]
    assert len(verdicts(log)) == 1
    log.commit_offsets(slot.group_id("claw"), dict.fromkeys(log.end_offsets(ROW_TOPICS), 0))
    judge_all(log, slot, one)
    assert len(verdicts(log)) == 1


@pytest.mark.parametrize("later", [{"version": 2}, {"generation": 1}])
def test_nothing_to_say_of_a_later_word_takes_the_earlier_back(later):
    """Else the reward of a rule that was mended away would stand for ever."""
    log = pooled_log(episode("a", "t", None))
    judge_all(log, slot_of("trajectory"), lambda _: (0.5,))
    assert slots(log) == {("a", "t", None): 0.5}
    slot = slot_of("trajectory", **later)
    log.commit_offsets(slot.group_id("claw"), dict.fromkeys(log.end_offsets(ROW_TOPICS), 0))
    judge_all(log, slot, lambda _: (None,))
    assert [event.value for event in words(log)] == [0.5, None]
    assert slots(log).get(("a", "t", None)) is None


def give_up(_):
    raise GaveUp("deadline", "after 2 s", tokens=3)


def test_a_scorer_that_gives_up_is_believed_for_this_subject_alone():
    """Equal content of another trajectory is asked about again; the same subject never."""
    log = pooled_log([*episode("a", "t", None), *episode("b", "t", None)])
    slot = slot_of("trajectory")
    judge_all(log, slot, give_up, records_max=1)
    assert {event.reason for event in words(log)} == {"deadline"}
    assert {event.group_id for event in words(log)} == {"a", "b"}
    log.commit_offsets(slot.group_id("claw"), dict.fromkeys(log.end_offsets(ROW_TOPICS), 0))
    assert judge_all(log, slot, one).views == []


def test_only_channels_and_tags_that_were_named_are_judged():
    """The others are nobody's subject."""
    tagged = [facts.started("b", "t", tags=("hard",)), *episode("b", "t", None)]
    log = pooled_log([*episode("a", "t", None), *tagged])
    judge_all(log, slot_of("trajectory", options=SlotOptions(tags=("hard",))), one)
    assert set(slots(log)) == {("b", "t", None)}
    log = pooled_log([*episode("a", "t", None), *tagged])
    judge_all(log, slot_of("trajectory", options=SlotOptions(channels=("val",))), one)
    assert slots(log) == {}


def test_a_bug_of_a_scorer_ends_the_consumer_before_its_record_counts():
    """Not every exception is a verdict."""
    log = pooled_log(episode("a", "t", None))

    def bug(_):
        raise ZeroDivisionError

    slot = slot_of("trajectory")
    with pytest.raises(ZeroDivisionError):
        judge_all(log, slot, bug)
    assert judge_all(log, slot, one).views


def test_who_was_fenced_publishes_nothing():
    """A successor opened the partition while the answer was on its way: the answer is thrown away."""
    log = pooled_log(episode("a", "t", None))
    slot = slot_of("trajectory")

    def succeeded(judged):
        log.fence(f"{slot.group_id('claw')}-0")
        return one(judged)

    with pytest.raises(Fenced):
        judge_all(log, slot, succeeded)
    assert words(log) == []
    assert verdicts(log) == []


class DeafLog(MemoryLog):
    """Whose transactions come through, and whose answers do not: every second one, once."""

    deaf = 0

    def transactions(self, transactional_id):
        made = super().transactions(transactional_id)
        commit = made.commit

        def unheard(items):
            positions = commit(items)
            if any(item.value is not None for item in items) and self.deaf > 0:
                self.deaf -= 1
                raise NotAcknowledged("nobody answered")
            return positions

        made.commit = unheard
        return made


def test_a_commit_whose_answer_was_lost_is_looked_up_and_not_paid_again():
    """The outcome of an error is not known: who opens the partition again finds the verdict there."""
    log = DeafLog(SETTINGS)
    add_to(log, episode("a", "t", None))
    log.deaf = 1
    scorer = judge_all(log, slot_of("trajectory"), one)
    assert len(scorer.views) == 1
    assert len(verdicts(log)) == 1
    assert [event.value for event in words(log) if isinstance(event, RewardAssigned)] == [1.0]


def test_each_partition_has_the_verdict_on_its_subjects():
    """So that whoever gets one of them alone knows the verdict; each was asked for, and has its cost."""
    log = MemoryLog(SETTINGS.model_copy(update={"partitions": 2}))
    for name in "abcdef":
        add_to(log, episode(name, "t", None))
    scorer = judge_all(log, slot_of("trajectory"), one)
    assert len(scorer.views) == 2
    partitions = {record.partition for record in records_in(log) if record.value is not None}
    assert partitions == {0, 1}
    assert len({verdict.verdict_id for verdict in verdicts(log)}) == 1
    assert [verdict.tokens for verdict in verdicts(log)] == [10, 10]


def test_a_failure_says_nothing_against_what_was_said_before():
    """An outage during a backfill, or of a new version: what was said stays."""
    log = pooled_log(episode("a", "t", None))
    judge_all(log, slot_of("trajectory"), lambda _: (0.5,))
    for slot in (slot_of("trajectory", generation=2), slot_of("trajectory", version=3)):
        log.commit_offsets(slot.group_id("claw"), dict.fromkeys(log.end_offsets(ROW_TOPICS), 0))
        judge_all(log, slot, give_up)
    assert sorted(type(event).__name__ for event in words(log)) == ["RewardAssigned", "ScoringFailed", "ScoringFailed"]
    assert slots(log) == {("a", "t", None): 0.5}


@pytest.mark.parametrize("answer", ["values", "failure"])
def test_what_a_verdict_cost_stands_with_the_first_of_its_rewards(answer):
    """Sums over rewards are sums over verdicts; who did the work is named once."""
    log = pooled_log(episode("a", "t", None, calls=3))

    def steps(judged):
        if answer == "failure":
            raise GaveUp("deadline", "", tokens=9, calls=("j-1",))
        return Opinion(values=(None, 1.0, 0.5), tokens=9, calls=("j-1",))

    judge_all(log, slot_of("steps", price_per_million=1.0), steps)
    said = [event.verdict for event in words(log)]
    assert len(said) == 3
    assert [(word.tokens, word.calls) for word in said] == [(9, ("j-1",))] + [(0, ())] * (len(said) - 1)
    assert [word.price for word in said[1:]] == [None] * (len(said) - 1)


def test_a_verdict_that_no_record_holds_is_too_large_and_the_others_of_its_poll_are_kept():
    """Never a loop of crashes: what it said is lost, why is kept."""
    log = pooled_log([*episode("a", "t", None), *episode("b", "t", None, calls=1)])
    chatty = tuple(f"{at:>1000}" for at in range(9_000))

    def chat(judged):
        return Opinion(values=(1.0,), calls=chatty if judged.group_id == "a" else ())

    judge_all(log, slot_of("trajectory"), chat)
    assert slots(log) == {("a", "t", None): "too_large", ("b", "t", None): 1.0}


def records_in(log):
    with closing(log.reader([VERDICTS])) as reader:
        return list(reader.read_to_end())


@pytest.mark.parametrize("scope", ["call", "next", "steps", "trajectory", "group"])
def test_a_verdicts_span_is_linked_to_the_calls_that_were_judged(scope, monkeypatch):
    """Whatever its subject is made of: each of the calls is some verdict's."""
    traces = {}

    def sampled(event):
        if not isinstance(event, CallCaptured):
            return event
        traces[event.call_id] = (f"{len(traces) + 1:032x}", f"{7:016x}")
        own = "00-{}-{}-01".format(*traces[event.call_id])
        return structs.replace(event, envelope=structs.replace(event.envelope, traceparent=own))

    history = [sampled(event) for event in [facts.opened("g", expected_size=1), *episode("g", "t", None)]]
    with Receiver() as otlp:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp.url)
        with traced("rewards"):
            judge_all(pooled_log(history), slot_of(scope), one)
    assert {link for span in otlp.named("claw-rewards", "score ") for link in span.links} == {*traces.values()}
