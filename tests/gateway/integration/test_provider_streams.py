"""Streams of a provider that knows nothing of token ids: as they came to the client, stored, and never trained on."""

import json

import aiohttp
import pytest

from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.schemas.events import FactPosition, StepRecord
from tests.gateway.engine import Json, Reply, ScriptedEngine
from tests.gateway.house import House, ask
from tests.gateway.processes import poll

ASK: Json = {"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def said(**choice: object) -> bytes:
    """A chunk as a provider writes it: spaces after colons, fields of its own, `logprobs` only when there is nothing."""
    body = {
        "id": "chatcmpl-9",
        "object": "chat.completion.chunk",
        "system_fingerprint": "fp_1",
        "service_tier": "default",
        "choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None, **choice}],
        "obfuscation": "x7",
    }
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


PIECES = (
    said(delta={"role": "assistant", "content": "", "refusal": None}),
    b": keep-alive\n\n",
    *(said(delta={"content": word}) for word in ("Grüß", " Gott", ' "you"', "\n")),
    said(finish_reason="stop"),
    b"data: [DONE]\n\n",
)


async def test_pass_through_byte_for_byte(engine: ScriptedEngine) -> None:
    """The client gets the provider's bytes, comments and all; the log has the text and says why nobody may train on it."""
    engine.then(Reply(pieces=PIECES))
    with House(upstreams=f"{engine.url}/v1") as house:
        reply = await ask(house, ASK)
        assert (reply.status, reply.body) == (200, b"".join(PIECES))
        assert engine.requests[0].json == ASK
        (event,) = house.captured
    assert json.loads(event.response_body)["choices"][0]["message"]["content"] == 'Grüß Gott "you"\n'
    assert (event.status, event.finish_reason, event.response_ids) == ("completed", "stop", b"")
    assert {"prompt_ids", "token_ids"} <= set(event.integrity.missing)
    rows = project(fold(None, event, FactPosition(topic="claw.calls", partition=0, offset=0))).values()
    (step,) = (row for row in rows if isinstance(row, StepRecord))
    assert not step.trainable
    assert {"prompt_ids", "token_ids", "response_empty"} <= set(step.reasons)


async def test_pieces_may_be_cut_anywhere(engine: ScriptedEngine) -> None:
    """A provider's proxy cuts where it likes, within a character, too."""
    whole = b"".join(PIECES)
    engine.then(Reply(pieces=tuple(whole[at : at + 7] for at in range(0, len(whole), 7))))
    with House(upstreams=f"{engine.url}/v1") as house:
        assert (await ask(house, ASK)).body == whole
        assert json.loads(house.captured[0].response_body)["choices"][0]["message"]["content"].startswith("Grüß Gott")


async def test_a_providers_stream_that_breaks_is_no_reply(engine: ScriptedEngine) -> None:
    """Half of a provider's stream is stored as aborted, and its client is told."""
    engine.then(Reply(pieces=PIECES[:4], reset=True))
    with House(upstreams=f"{engine.url}/v1") as house:
        with pytest.raises(aiohttp.ClientPayloadError):
            await ask(house, ASK)
        await poll(lambda: house.captured)
        (event,) = house.captured
    assert event.status == "aborted"
    assert "stream_end" in event.integrity.missing
