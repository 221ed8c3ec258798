"""A person's act, appended by a producer that lives as long as the command."""

from collections.abc import Sequence
from contextlib import closing

from consumers.pool import acts
from datapool.feedback import FeedbackFact
from eventlog.kafka.producer import EventProducer
from eventlog.settings import LogSettings
from schemas.events import TrajectoryEvicted
from schemas.topics import Topic


def append(settings: LogSettings, topic: Topic, facts: Sequence[FeedbackFact | TrajectoryEvicted]) -> None:
    """Appends all; returns once they are acknowledged. Raises LogError; doing it again after one is safe."""
    if not facts:
        return
    with closing(EventProducer(settings)) as producer:
        acts.append(producer, topic, facts)
