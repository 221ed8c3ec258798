"""Calls for `bench.rewards`: chats of our own making, each with words of its own, on a log; and a rule that judges them."""

import hashlib
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import closing

import orjson

from bench.episodes import call, outgoing, prompt_edge
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import GroupImage, changes
from claw_r1.datapool.fold.state import Fact, GroupState
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.records import Outgoing, Position
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.arrays import pack_ids
from claw_r1.schemas.codec import decode
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import (
    CallCaptured,
    Edge,
    Event,
    FactPosition,
    GroupOpened,
    Timings,
    TrajectoryCompleted,
)
from claw_r1.schemas.topics import GROUPS, TRAJECTORIES

TOKENS = 64
WORDS = [f"word{number:03}" for number in range(500)]
PROMPT_WORDS, REPLY_WORDS = 100, 40


def noop(_: object) -> float:
    """The cheapest rule."""
    return 0.5


def chat(group: str, trajectory: str, number: int, messages: list[dict[str, str]], dice: random.Random) -> CallCaptured:
    """One call; its reply is appended to `messages`. About 2 kB with one turn."""
    messages.append({"role": "user", "content": " ".join(dice.choices(WORDS, k=PROMPT_WORDS))})
    request = orjson.dumps({"model": "bench", "messages": messages})
    reply = {"role": "assistant", "content": " ".join(dice.choices(WORDS, k=REPLY_WORDS))}
    messages.append(reply)
    length = TOKENS * (len(messages) - 1)  # it grows, as a conversation does
    prompt = pack_ids([dice.randrange(150_000) for _ in range(length)])
    response = pack_ids([dice.randrange(150_000) for _ in range(TOKENS)])
    now_us = time.time_ns() // 1000
    body = orjson.dumps({"choices": [{"index": 0, "message": reply, "finish_reason": "stop"}]})
    return call(
        group,
        trajectory,
        number,
        prompt_edge(prompt),
        response,
        envelope=envelope("bench"),
        request=Edge(suffix=request, full_length=len(request), full_digest=hashlib.sha256(request).hexdigest()),
        response_body=body,
        timings=Timings(received_us=now_us, dispatched_us=now_us, done_us=now_us),
    )


def single_calls(count: int, name: str = "c") -> Iterator[CallCaptured]:
    """Calls of trajectories of their own."""
    dice = random.Random(name)
    for number in range(count):
        yield chat(f"{name}{number}", f"{name}{number}", 0, [], dice)


def episodes(count: int, turns: int, name: str = "e") -> Iterator[Event]:
    """Completed trajectories in groups of their own."""
    dice = random.Random(name)
    for number in range(count):
        group = f"{name}{number}"
        messages: list[dict[str, str]] = []
        yield GroupOpened(envelope=envelope("bench"), group_id=group, expected_size=1)
        for turn in range(turns):
            yield chat(group, group, turn, messages, dice)
        done = envelope("bench")
        yield TrajectoryCompleted(envelope=done, group_id=group, trajectory_id=group, status="completed", calls=turns)


def publish_with_rows(settings: LogSettings, events: Iterable[Event]) -> None:
    """Facts, and every row of trajectories and groups that the streams would write of them."""
    topics = {topic.name: topic for topic in (TRAJECTORIES, GROUPS)}
    states: dict[str, GroupState] = {}
    images: dict[str, GroupImage] = {}
    futures = []
    with closing(EventProducer(settings)) as producer:
        for fact in events:
            assert isinstance(fact, Fact)
            group = fact.group_id
            at: Position = producer.produce(outgoing(fact)).result()
            position = FactPosition(topic=at.topic, partition=at.partition, offset=at.offset)
            states[group] = fold(states.get(group), fact, position)
            images[group], rows = changes(images.get(group), states[group])
            for key, row in rows.items():
                if row is not None and key.topic in topics:
                    item = Outgoing.of(topics[key.topic], key.key, decode(row.value), at.partition)
                    futures.append(producer.produce(item))
        _ = [future.result() for future in futures]
