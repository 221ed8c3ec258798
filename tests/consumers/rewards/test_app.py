"""Where a slot begins that has no offsets: it never ran, or it was off for longer than Kafka keeps them. How one ends that cannot open."""

import threading
import time
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.app import SlotThread, begin
from claw_r1.consumers.rewards.config import ScoredSlot, SlotOptions
from claw_r1.consumers.rewards.kinds import Kind, ScorerSettings
from claw_r1.consumers.rewards.metrics import RewardsMetrics
from claw_r1.consumers.rewards.scorer import RewardScorer
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.of_rows import topics_of
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import VerdictKept
from claw_r1.schemas.topics import VERDICTS
from tests import facts
from tests.consumers.published import group, publish
from tests.consumers.rewards.fleet import write
from tests.consumers.rewards.in_memory import slot_of

pytestmark = pytest.mark.kafka


def slot(name: str) -> ScoredSlot:
    return slot_of("call", name=name, options=SlotOptions(since="now"))


def judged(settings: LogSettings, name: str, at_us: int) -> None:
    """A verdict that the slot kept at that time."""
    verdict = VerdictKept(
        envelope=facts.envelope(at_us=at_us),
        verdict_id=f"{name} {at_us}",
        source="rule",
        name=name,
        version=1,
        scope="call",
        digest="",
        values=(1.0,),
    )
    publish(settings, [Outgoing.of(VERDICTS, verdict.verdict_id.encode(), verdict)])


def begins_at(settings: LogSettings, name: str) -> dict[int, int | None]:
    """The offsets of the slot's group, by partition, once it has begun."""
    kafka, scored = KafkaLog(settings), slot(name)
    begin(kafka, scored)
    topics = topics_of(scored.scorer.scope)
    ends = kafka.end_offsets(topics)
    committed = kafka.committed_offsets(scored.group_id(settings.prefix), topics, {number for _, number in ends})
    return {number: at for (_, number), at in committed.items()}


def ends_of(settings: LogSettings) -> dict[int, int]:
    return {number: end for (_, number), end in KafkaLog(settings).end_offsets(topics_of("call")).items()}


def test_a_slot_that_was_off_begins_at_its_newest_verdict(log_settings: LogSettings) -> None:
    """What came while it was off is judged; a slot that never ran begins with what comes next, once."""
    write(log_settings, group("before", [1.0]))
    before = ends_of(log_settings)
    time.sleep(0.01)  # times of records are milliseconds
    for at_us in (1_000_000, now_us()):
        judged(log_settings, "was-off", at_us)
    time.sleep(0.01)
    write(log_settings, group("meanwhile", [1.0]))
    now = ends_of(log_settings)
    assert begins_at(log_settings, "was-off") == before != now
    assert begins_at(log_settings, "new") == now
    write(log_settings, group("later", [1.0]))
    assert begins_at(log_settings, "was-off") == before
    assert begins_at(log_settings, "new") == now


def test_times_of_a_copied_log_say_nothing_of_when_a_slot_was_at_work(log_settings: LogSettings) -> None:
    """All its records are newer than the verdict: a slot that began now, once, does not judge what was before that."""
    judged(log_settings, "copied", 1_000_000)
    write(log_settings, group("before", [1.0]))
    assert begins_at(log_settings, "copied") == ends_of(log_settings)


@pytest.mark.parametrize(
    ("problem", "is_bug"),
    [(ConsumerError("my_rules: no module of that name"), False), (RuntimeError("a bug"), True)],
    ids=["refusal", "bug"],
)
def test_a_scorer_that_is_refused_is_one_line(problem: Exception, is_bug: bool) -> None:
    """A rule that does not load is its author's affair, and a traceback through our files says nothing of it; of a bug it does."""

    def refuse(_: ScorerSettings) -> RewardScorer:
        raise problem

    refused = replace(slot("refused"), kind=Kind(ScorerSettings, refuse))
    thread = SlotThread(KafkaLog(LogSettings()), refused, RewardsSettings(), RewardsMetrics(), threading.Event())
    with capture_logs() as lines:
        thread.run()
    (line,) = [line for line in lines if line["event"] == "rewards_slot_died"]
    assert thread.error is problem
    assert bool(line.get("exc_info")) == is_bug
    assert line.get("error") == (None if is_bug else str(problem))
