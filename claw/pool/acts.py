"""What a person does to the pool: one act is one correlation id over all its facts, so that it can be found again as one."""

from collections.abc import Sequence
from contextlib import closing

from msgspec.structs import replace

from eventlog.kafka.producer import EventProducer
from eventlog.records import Outgoing
from eventlog.settings import LogSettings
from schemas.envelopes import envelope
from schemas.events import Envelope, StepCurated, TrajectoryEvicted
from schemas.keys import group_key
from schemas.topics import Topic


def act_envelope(producer: str, act_id: str, *, cause: str | None = None) -> Envelope:
    """Of one fact of the act. cause: the act or event that it answers to."""
    return replace(envelope(producer, causation_id=cause), correlation_id=act_id)


def append(settings: LogSettings, topic: Topic, facts: Sequence[StepCurated | TrajectoryEvicted]) -> None:
    """Appends all; returns once they are acknowledged. Raises LogError; doing it again after one is safe."""
    if not facts:
        return
    with closing(EventProducer(settings)) as producer:
        sent = [producer.produce(Outgoing.of(topic, group_key(fact.group_id), fact)) for fact in facts]
        for future in sent:
            future.result()
