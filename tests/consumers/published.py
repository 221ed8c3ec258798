"""Facts on a real log for the tests of consumers: small episodes, published and acknowledged."""

import hashlib
from collections.abc import Iterable

import orjson

from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.records import Outgoing, Position
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.arrays import pack_floats, pack_ids
from claw_r1.schemas.events import CallCaptured, Edge, Event, VersionSpan
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS
from tests import facts


def publish(settings: LogSettings, items: Iterable[Outgoing]) -> list[Position]:
    """Where they stand, once all are acknowledged."""
    producer = EventProducer(settings)
    try:
        return [future.result() for future in [producer.produce(item) for item in items]]
    finally:
        producer.close()


def outgoing(event: Event) -> Outgoing:
    """A fact on its topic, under its key."""
    topic = REWARDS if isinstance(event, facts.ON_REWARDS) else CALLS
    return Outgoing.of(topic, group_key(event.group_id), event)


def say(settings: LogSettings, *events: Event) -> list[Position]:
    return publish(settings, [outgoing(event) for event in events])


def body(value: object) -> bytes:
    return orjson.dumps(value)


def chat_call(
    group: str, trajectory: str, call_id: str, prompt: list[int], response: list[int], **changes: object
) -> CallCaptured:
    """A captured chat call with these ids; its text is its ids."""
    asked = {"messages": [{"role": "user", "content": " ".join(map(str, prompt))}]}
    said = {"choices": [{"index": 0, "message": {"role": "assistant", "content": " ".join(map(str, response))}}]}
    request = body(asked)
    fields = {
        "prompt": facts.edge(prompt),
        "response_ids": pack_ids(response),
        "response_logprobs": pack_floats([-0.25] * len(response)),
        "spans": (VersionSpan(run_id="run", version=3, start=0, end=len(response)),),
        "request": Edge(suffix=request, full_length=len(request), full_digest=hashlib.sha256(request).hexdigest()),
        "response_body": body(said),
        **changes,
    }
    return facts.call(group, trajectory, call_id, **fields)


def episode(group: str, trajectory: str, reward: float | None = 1.0, *, calls: int = 2) -> list[Event]:
    """A whole trajectory whose calls extend each other, with an outcome reward."""
    told: list[Event] = []
    context = [1, 2, 3]
    for n in range(calls):
        response = [10 + n, 20 + n]
        told.append(chat_call(group, trajectory, f"{trajectory}-{n}", context, response, received_us=n))
        context = [*context, *response, 5]
    return [*told, facts.completed(group, trajectory, calls=calls, reward=reward)]


def group(name: str, rewards: Iterable[float | None], *, calls: int = 2) -> list[Event]:
    """A declared group with one trajectory for each reward."""
    values = list(rewards)
    told: list[Event] = [facts.opened(name, expected_size=len(values))]
    for n, value in enumerate(values):
        told += episode(name, f"{name}-{n}", value, calls=calls)
    return told
