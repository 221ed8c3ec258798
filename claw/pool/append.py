"""A person's act, appended by a producer that lives as long as the command."""

from collections.abc import Sequence
from contextlib import closing

from claw_r1.consumers.pool import acts
from claw_r1.datapool.feedback import FeedbackFact
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import Topic


def append(settings: LogSettings, topic: Topic, facts: Sequence[FeedbackFact | acts.EvictionFact]) -> None:
    """Appends all; returns once they are acknowledged. Raises LogError; doing it again after one is safe."""
    if not facts:
        return
    with closing(EventProducer(settings)) as producer:
        acts.append(producer, topic, facts)
