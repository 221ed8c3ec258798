"""Facts as well-behaved agents leave them: groups of 8, three calls of 512 + 128 tokens each, rewards, a completion."""

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from msgspec.structs import replace

from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.arrays import pack_floats, pack_ids
from claw_r1.schemas.events import (
    CallCaptured,
    Edge,
    Envelope,
    Event,
    GroupOpened,
    Integrity,
    RewardAssigned,
    Sampling,
    Timings,
    TrajectoryCompleted,
    TrajectoryStarted,
    Usage,
    VersionSpan,
)
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS as CALLS_TOPIC
from claw_r1.schemas.topics import REWARDS

MEMBERS = 8
CALLS = 3
PROMPT_TOKENS = 512
RESPONSE_TOKENS = 128
VOCABULARY = 150_000
START_US = 1_790_000_000_000_000
IN_FLIGHT = 2000
SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=RESPONSE_TOKENS, seed=None)


def envelope(name: str, at_us: int) -> Envelope:
    return Envelope(
        event_id=f"{name}-0000-4000-8000-000000000000",
        occurred_at_us=START_US + at_us,
        producer="gateway/7f3a",
        run_id="run",
    )


def prompt_edge(ids: bytes) -> Edge:
    """A prompt without a base."""
    return Edge(suffix=ids, full_length=len(ids) // 4, full_digest=hashlib.sha256(ids).hexdigest())


def random_ids(source: random.Random, count: int) -> bytes:
    return pack_ids([source.randrange(VOCABULARY) for _ in range(count)])


def call(group: str, trajectory: str, number: int, prompt: Edge, response: bytes, **fields: Any) -> CallCaptured:
    """A call fit to train on; response: packed ids, fields: what is another than here."""
    at_us = START_US + number
    name, tokens = f"{trajectory}-{number}", len(response) // 4
    made = CallCaptured(
        envelope=envelope(name, number),
        group_id=group,
        trajectory_id=trajectory,
        call_id=name,
        prompt=prompt,
        response_ids=response,
        response_logprobs=pack_floats([-0.5 - n / 1000 for n in range(tokens)]),
        spans=(VersionSpan(run_id="run", version=3, start=0, end=tokens),),
        sampling=SAMPLING,
        finish_reason="stop",
        request=prompt_edge(b"{}" * 500),
        response_body=b"x" * 600,
        model_id="tiny",
        worker_id="w0",
        upstream="http://127.0.0.1:8000",
        agent="solver",
        tags=("math",),
        status="completed",
        http_status=200,
        usage=Usage(prompt_tokens=prompt.full_length, completion_tokens=tokens),
        timings=Timings(received_us=at_us, dispatched_us=at_us, first_token_us=at_us, done_us=at_us + 1),
        integrity=Integrity(complete=True),
    )
    return replace(made, **fields)


def group(number: int, source: random.Random) -> Iterator[Event]:
    """One group, its members side by side: turn after turn, a reward for each call, then the completions."""
    name = f"g{number:06d}"
    yield GroupOpened(envelope=envelope(f"{name}-o", 0), group_id=name, expected_size=MEMBERS, tags=("math",))
    members = [f"{name}-t{member}" for member in range(MEMBERS)]
    for one in members:
        yield TrajectoryStarted(envelope=envelope(f"{one}-s", 1), group_id=name, trajectory_id=one, task='{"n": 1}')
    for turn in range(CALLS):
        for one in members:
            prompt = prompt_edge(random_ids(source, PROMPT_TOKENS))
            yield call(name, one, turn, prompt, random_ids(source, RESPONSE_TOKENS))
            yield RewardAssigned(
                envelope=envelope(f"{one}-{turn}-r", turn), group_id=name, trajectory_id=one, call_id=f"{one}-{turn}",
                value=0.25,
            )  # fmt: skip
    for place, one in enumerate(members):
        yield TrajectoryCompleted(
            envelope=envelope(f"{one}-x", 9), group_id=name, trajectory_id=one, status="completed", calls=CALLS,
            rewards=CALLS, reward=place / MEMBERS,
        )  # fmt: skip


def load(groups: int, seed: int = 0) -> Iterator[Event]:
    """Facts of many groups, eight groups side by side as concurrent agents leave them."""
    source = random.Random(seed)
    for start in range(0, groups, 8):
        side_by_side = [group(number, source) for number in range(start, min(start + 8, groups))]
        for turn in zip(*side_by_side, strict=True):
            yield from turn


def outgoing(fact: Event) -> Outgoing:
    """A fact for its topic."""
    topic = REWARDS if isinstance(fact, RewardAssigned) else CALLS_TOPIC
    return Outgoing.of(topic, group_key(fact.group_id), fact)  # type: ignore[union-attr]  # facts have a group


def publish(settings: LogSettings, items: Iterable[Outgoing]) -> None:
    """Appends all; returns once the last is acknowledged."""
    waiting = iter(items)
    with closing(EventProducer(settings)) as producer:
        while some := list(islice(waiting, IN_FLIGHT)):
            for sent in [producer.produce(item) for item in some]:
                sent.result()


def records(facts: Iterable[Event]) -> list[Record]:
    """Makes the records that one partition of each topic holds."""
    offsets: Counter[str] = Counter()
    made = []
    for fact in facts:
        sent = outgoing(fact)
        made.append(Record(sent.topic.name, 0, offsets[sent.topic.name], 0, sent.key, sent.value))
        offsets[sent.topic.name] += 1
    return made
