"""A long stream keeps nobody waiting: it is added up while it passes, some at a time, however fast it comes."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from claw_r1.gateway.openai.chat import ChatCompletions
from claw_r1.gateway.openai.chunks import StreamedCompletion
from claw_r1.gateway.tokens.packed_protocol import READ_BYTES
from tests.gateway.engine import Reply, ScriptedEngine
from tests.gateway.house import ASK, House, ask
from tests.gateway.packed import comment
from tests.patience import until

CHUNKS = 20_000
CHUNK = {"id": "c", "choices": [{"index": 0, "delta": {"content": "word "}, "logprobs": None, "finish_reason": None}]}
EVENT = b"data: " + json.dumps(CHUNK).encode() + b"\n\n"
LAST = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
AT_ONCE_MAX = READ_BYTES // len(EVENT) + 3
"""Events: those of one portion, one that began before it, and the last ones."""


class Turns(ChatCompletions):
    """Chat that notes in which turn of the event loop it takes each event."""

    def __init__(self) -> None:
        self.turn, self.taken = 0, Counter[int]()

    def assembly(self) -> StreamedCompletion:
        noted = StreamedCompletion(self.kind)
        take = noted.take

        def note(event: dict[str, Any]) -> None:
            self.taken[self.turn] += 1
            take(event)

        noted.take = note  # type: ignore[method-assign]  # a method that counts or breaks
        return noted

    def count_turns(self) -> None:
        """To be called on the loop, whose every turn then counts."""
        self.turn += 1
        asyncio.get_running_loop().call_soon(self.count_turns)


@pytest.mark.parametrize("piece", [len(EVENT), 60_000, CHUNKS * len(EVENT)], ids=["events", "60 kB", "all at once"])
async def test_no_turn_of_the_loop_adds_up_more_than_a_portion(engine: ScriptedEngine, piece: int) -> None:
    """Neither while it passes nor at its end; and what is stored is all of it."""
    raw, turns = EVENT * CHUNKS, Turns()
    pieces = tuple(raw[at : at + piece] for at in range(0, len(raw), piece))
    engine.then(Reply(pieces=(*pieces, LAST, comment(), b"data: [DONE]\n\n")))
    with House(protocols=(("chat/completions", turns),)) as house:
        house.worker(engine.url)
        house.on_loop(turns.count_turns)
        reply = await ask(house, {**ASK, "stream": True})
        assert reply.body == raw + LAST + b"data: [DONE]\n\n"
        until(lambda: house.captured)
        (call,) = house.captured
    assert json.loads(call.response_body)["choices"][0]["message"]["content"] == "word " * CHUNKS
    assert (call.integrity.missing, call.status) == ((), "completed")
    assert sum(turns.taken.values()) == CHUNKS + 1
    assert max(turns.taken.values()) <= AT_ONCE_MAX


async def test_a_bug_while_a_stream_is_added_up_ends_it_without_an_end(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As any bug over a call: an error for the client, a failed call in the log."""

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(StreamedCompletion, "take", broken)
    engine.then(Reply(pieces=(EVENT * 1000, EVENT * 1000, LAST, comment(), b"data: [DONE]\n\n")))
    with House() as house:
        house.worker(engine.url)
        with pytest.raises(Exception, match="payload"):
            await ask(house, {**ASK, "stream": True})
        until(lambda: house.failed)
        assert [event.reason for event in house.failed] == ["internal_error"]
