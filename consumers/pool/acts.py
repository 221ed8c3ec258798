"""Acts of a person on the pool: all facts of one act carry one correlation id, by which the act is found again."""

from collections.abc import Sequence

from msgspec.structs import replace

from claw_r1.datapool.feedback import FeedbackFact
from claw_r1.eventlog.protocols import Producer
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import Envelope, GroupEvicted, TrajectoryEvicted
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import Topic

EvictionFact = GroupEvicted | TrajectoryEvicted


def act_envelope(producer: str, act_id: str, *, cause: str | None = None) -> Envelope:
    """The envelope of one fact of the act. cause: id of the act or event that it answers."""
    return replace(envelope(producer, causation_id=cause), correlation_id=act_id)


def append(producer: Producer, topic: Topic, facts: Sequence[FeedbackFact | EvictionFact]) -> None:
    """Appends all; returns once they are acknowledged. Raises LogError; doing it again after one is safe."""
    sent = [producer.produce(Outgoing.of(topic, group_key(fact.group_id), fact)) for fact in facts]
    for future in sent:
        future.result()
