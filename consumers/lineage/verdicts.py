"""From a scorer's verdict to the rewards that were made from it, and to the judge's own calls."""

from dataclasses import dataclass

from claw_r1.eventlog.kafka.reader import LogReader, read_topics
from claw_r1.eventlog.records import readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import RewardAssigned, ScoringFailed, VerdictKept
from claw_r1.schemas.topics import REWARDS, VERDICTS


@dataclass(frozen=True, slots=True)
class TracedVerdict:
    """A verdict and where it went."""

    verdict: VerdictKept
    rewards: tuple[RewardAssigned | ScoringFailed, ...]


def trace_verdict(settings: LogSettings, verdict_id: str) -> TracedVerdict | None:
    """None when no scorer kept a verdict of this id. Raises BrokerUnreachable, TopicMissing."""
    key = verdict_id.encode("utf-8", "surrogatepass")
    with LogReader(settings, [VERDICTS], wants=lambda _, each, __: each == key) as reader:
        verdicts = [event for event in readable(reader.read_to_end()) if isinstance(event, VerdictKept)]
    if not verdicts:
        return None
    paid = max(verdicts, key=lambda verdict: (verdict.tokens, verdict.seconds))  # of equal ones in several partitions
    words = [
        event
        for event in readable(read_topics(settings, [REWARDS]))
        if isinstance(event, RewardAssigned | ScoringFailed)
        and event.verdict is not None
        and event.verdict.verdict_id == verdict_id
    ]
    return TracedVerdict(paid, tuple({event.envelope.event_id: event for event in words}.values()))
