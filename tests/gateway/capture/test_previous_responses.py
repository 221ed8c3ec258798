"""Requests that go on from a reply: found in memory or in the log, of this trajectory alone, and sent in full."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from claw_r1.eventlog.errors import BrokerUnreachable
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.gateway.call_protocol import CallRequest, EarlierCall
from claw_r1.gateway.capture import previous_responses
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.openai.responses import Responses
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS
from tests.gateway.engine import Action, Received, Reply, ScriptedEngine, whole
from tests.gateway.house import Answer, House, ask
from tests.gateway.openai.responses_wire import PATH, Json, event, message, response
from tests.gateway.packed import comment
from tests.gateway.processes import GatewayProcess
from tests.lazy_modules import lazy_module

if TYPE_CHECKING:
    import openai
else:
    openai = lazy_module("openai")

RESULT: Json = {"type": "function_call_output", "call_id": "c1", "output": "2"}


def user(text: str) -> Json:
    """The item that a text is."""
    return {"type": "message", "role": "user", "content": text}


def counting() -> Action:
    """Replies resp_1, resp_2, … that say answer 1, answer 2, …"""
    numbers = itertools.count(1)

    def answer(received: Received) -> Reply:
        number = next(numbers)
        reply = response(message(f"answer {number}"), response_id=f"resp_{number}")
        if received.json.get("stream"):
            return Reply(pieces=(comment(), event("response.completed", 0, response=reply)))
        return whole(reply)

    return answer


class Serving(House):
    """A gateway whose worker hands tokens over."""

    def __init__(self, engine: ScriptedEngine, log: MemoryLog | None = None) -> None:
        super().__init__(log)
        self.worker(engine.url)


@pytest.fixture
def house(engine: ScriptedEngine) -> Iterator[House]:
    """One whose engine counts."""
    engine.default = counting()
    with Serving(engine) as running:
        yield running


async def say(house: House, given: Any, previous: str | None = None, path: str = PATH, **more: Any) -> Answer:
    """One turn."""
    body = {"model": "tiny", "input": given, **more}
    return await ask(house, body if previous is None else {**body, "previous_response_id": previous}, path)


def assert_unknown(reply: Answer, previous: str) -> None:
    """OpenAI's words."""
    assert (reply.status, reply.json) == (
        404,
        {
            "error": {
                "message": f"Previous response with id '{previous}' not found.",
                "type": "invalid_request_error",
                "param": "previous_response_id",
                "code": "previous_response_not_found",
            }
        },
    )


@pytest.mark.parametrize("where", ["memory", "log"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_conversation_is_sent_in_full(
    house: House, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, where: str, streamed: bool
) -> None:
    """Input and output items of all turns before this input; no id, and no instructions but its own."""
    if where == "log":
        monkeypatch.setattr(previous_responses.PreviousResponses, "remember", lambda *_: None)
    await say(house, "hi", instructions="be brief", stream=streamed)
    await say(house, [RESULT], "resp_1", stream=streamed, temperature=0.5)
    last = await say(house, "more", "resp_2", stream=streamed)
    assert last.status == 200
    so_far = [user("hi"), message("answer 1"), RESULT]
    assert [received.json for received in engine.requests[1:]] == [
        {"model": "tiny", "input": so_far, "stream": streamed, "temperature": 0.5},
        {"model": "tiny", "input": [*so_far, message("answer 2"), user("more")], "stream": streamed},
    ]
    first, _, third = house.captured
    assert (first.adapted, third.adapted) == ((), ("previous_response",))
    assert third.integrity.complete


async def test_other_adaptations_stay(engine: ScriptedEngine) -> None:
    """A model's alias is resolved in what is sent in full, too."""
    engine.default = counting()
    with House(aliases={"gpt-*": "tiny"}) as house:
        house.worker(engine.url)
        await say(house, "hi", model="gpt-9")
        await say(house, "more", "resp_1", model="gpt-9")
    assert engine.requests[1].json == {"model": "tiny", "input": [user("hi"), message("answer 1"), user("more")]}
    assert house.captured[1].adapted == ("model", "previous_response")
    assert b"gpt-9" in house.captured[1].request.suffix


@pytest.mark.parametrize(("kind", "status"), [("memory", 404), ("log", 200)])
async def test_a_circle_ends(
    house: House, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, kind: str, status: int
) -> None:
    """An engine takes a reply's id from its client: of two replies of one id, the log knows which came first."""
    if kind == "log":
        monkeypatch.setattr(previous_responses.PreviousResponses, "remember", lambda *_: None)
    engine.default = lambda _: whole(response(message("me"), response_id="resp_1"))
    await say(house, "hi")
    await say(house, "again", "resp_1")
    reply = await say(house, "more", "resp_1")
    assert reply.status == status
    if status == 200:
        said = [user("hi"), message("me"), user("again"), message("me"), user("more")]
        assert engine.requests[-1].json["input"] == said


async def test_the_event_holds_what_the_client_wrote(house: House) -> None:
    """Its own body with the id in it; what the engine got is said by `adapted`."""
    await say(house, "hi")
    await say(house, "more", "resp_1")
    written = house.captured[1].request
    assert written.base_call_id is None
    assert json.loads(written.suffix) == {"model": "tiny", "input": "more", "previous_response_id": "resp_1"}


async def test_another_gateway_finds_it(house: House, engine: ScriptedEngine) -> None:
    """In the log, where request bodies stand as edges, and other calls, groups and poison between them."""
    padding = "x" * 2000
    await say(house, padding)
    await say(house, padding + "y", "resp_1")
    assert house.captured[1].request.base_call_id is not None
    for path in ("/t2/g1/v1/responses", "/t1/g2/v1/responses"):
        await say(house, "aside", path=path)
    house.log.producer().produce(Outgoing(topic=CALLS, key=group_key("g1"), value=b"poison")).result(5)
    with Serving(engine, house.log) as other:
        assert (await say(other, "more", "resp_2")).status == 200
    said = [user(padding), message("answer 1"), user(padding + "y"), message("answer 2"), user("more")]
    assert engine.requests[-1].json["input"] == said


@pytest.mark.parametrize(
    ("path", "previous"),
    [
        (PATH, "resp_9"),
        (PATH, "'; drop"),
        ("/t2/g1/v1/responses", "resp_1"),
        ("/t1/g2/v1/responses", "resp_1"),
        ("/t1/v1/responses", "resp_1"),
        ("/v1/responses", "resp_1"),
    ],
)
async def test_of_nobody_or_of_another_trajectory(
    house: House, engine: ScriptedEngine, path: str, previous: str
) -> None:
    """Both are unknown, in the same words, and no engine is asked."""
    await say(house, "hi")
    reply = await say(house, "more", previous, path)
    assert_unknown(reply, previous)
    assert len(engine.requests) == len(house.captured) == 1


@pytest.mark.parametrize("where", ["memory", "log"])
async def test_what_is_not_stored_is_not_found(house: House, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """`store: false`, in the middle of a chain as well; the call is captured as ever."""
    if where == "log":
        monkeypatch.setattr(previous_responses.PreviousResponses, "remember", lambda *_: None)
    await say(house, "hi")
    assert (await say(house, "more", "resp_1", store=False)).status == 200
    assert_unknown(await say(house, "even more", "resp_2"), "resp_2")
    assert len(house.captured) == 2


async def test_a_reply_that_did_not_end_is_not_found(house: House, engine: ScriptedEngine) -> None:
    """Nobody saw its end."""
    engine.then(Reply(pieces=(event("response.created", 0, response=response(response_id="resp_0")),)))
    with pytest.raises(Exception):  # noqa: B017, PT011  # whatever the client library makes of a broken stream
        await say(house, "hi", stream=True)
    assert_unknown(await say(house, "more", "resp_0"), "resp_0")


class Forgetful(Serving):
    """Its log holds nothing."""

    def read_calls(self, group_id: str) -> Iterator[Record]:  # as its base has it
        return iter(())


class Away(Serving):
    """Its log cannot be read."""

    def read_calls(self, group_id: str) -> Iterator[Record]:
        raise BrokerUnreachable(group_id)


async def test_memory_is_bounded(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was used longest ago goes."""
    monkeypatch.setattr(previous_responses, "MEMORY_BYTES_MAX", 2500)
    engine.default = counting()
    with Forgetful(engine) as house:
        await say(house, "a" * 500)
        await say(house, "b" * 500)
        assert (await say(house, "more", "resp_1")).status == 200
        await say(house, "c" * 500)
        assert_unknown(await say(house, "more", "resp_2"), "resp_2")
        assert (await say(house, "more", "resp_1")).status == 200


async def test_a_conversation_is_no_larger_than_a_request(engine: ScriptedEngine) -> None:
    """What one request goes on from counts as if its client had sent it."""
    engine.default = counting()
    with Serving(engine) as house:
        limit = house.settings.body_bytes_max
        assert (await say(house, "x" * (limit // 2))).status == 200
        assert (await say(house, "y" * (limit // 2), "resp_1")).status == 200
        refused = await say(house, "z", "resp_2")
        assert (refused.status, refused.json["error"]["code"]) == (413, "body_too_large")


async def test_the_log_is_read_back_so_far(
    house: House, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no further, in records and in bytes."""
    for _ in range(3):
        await say(house, "hi")
    two = sum([len(record.value or b"") for record in itertools.islice(house.read_calls("g1"), 2)])
    for name, few in (("SEARCH_RECORDS_MAX", 2), ("SEARCH_BYTES_MAX", two)):
        with monkeypatch.context() as patched, Serving(engine, house.log) as other:
            patched.setattr(previous_responses, name, few)
            assert_unknown(await say(other, "more", "resp_1"), "resp_1")
    with Serving(engine, house.log) as other:
        assert (await say(other, "more", "resp_1")).status == 200


async def test_a_log_that_cannot_be_read(house: House, engine: ScriptedEngine) -> None:
    """Come again: nobody says that it is unknown. What memory holds needs no log."""
    with Away(engine, house.log) as away:
        reply = await say(away, "more", "resp_1")
        assert (reply.status, reply.json["error"]["code"], reply.headers["retry-after"]) == (503, "log_unreadable", "1")
        await say(away, "hi")
        assert (await say(away, "more", "resp_1")).status == 200


async def test_a_retry_is_the_same_call(house: House, engine: ScriptedEngine) -> None:
    """Nothing is looked up or generated again."""
    await say(house, "hi")
    body = {"model": "tiny", "input": "more", "previous_response_id": "resp_1"}
    replies = [await ask(house, body, PATH, idempotency_key="k") for _ in range(2)]
    assert replies[0].body == replies[1].body
    assert len(engine.requests) == 2


def test_a_conversation_is_written_as_it_was() -> None:
    """Integers of any size, characters of any kind, and what is no item; a picture far back counts as well."""
    protocol = Responses()
    body = (
        b'{"previous_response_id": "r", "n_tokens": 123456789012345678901, "input": "\\ud83d\\ude00", "x": {"a": 1.10}}'
    )
    picture = b'{"input": [{"role": "user", "content": [{"type": "input_image"}]}, 7, null]}'
    earlier = [
        EarlierCall(picture, b'{"output": 7}', None),
        EarlierCall(b"{}", b"[]", "q"),
        EarlierCall(b"{", b"{", None),
    ]
    request = protocol.continued(protocol.parse(body), earlier)
    fields = json.loads(request.forwarded)
    assert fields == {"n_tokens": 123456789012345678901, "x": {"a": 1.1}, "input": fields["input"]}
    assert fields["input"] == [*json.loads(picture)["input"], user("\U0001f600")]
    assert request.missing == ("multimodal",)
    with pytest.raises(InvalidRequest):
        protocol.continued(CallRequest(b"", b"[" * 100_000, None, request.sampling, previous="r"), earlier)


@pytest.mark.kafka
async def test_after_a_kill(engine: ScriptedEngine, log_settings: LogSettings, tmp_path: Path) -> None:
    """What a killed gateway answered is found by the next one, in Kafka, behind more records than are read at once."""
    engine.default = counting()
    process = GatewayProcess(log_settings, tmp_path, "--upstream", engine.url)
    async with openai.AsyncOpenAI(base_url=f"{process.url}/t1/g1/v1", api_key="x") as client:
        first = await client.responses.create(model="tiny", input="hi")
        await asyncio.gather(*(client.responses.create(model="tiny", input="aside", store=False) for _ in range(250)))
    process.kill()
    process = GatewayProcess(log_settings, tmp_path, "--upstream", engine.url)
    try:
        async with openai.AsyncOpenAI(base_url=f"{process.url}/t1/g1/v1", api_key="x") as client:
            await client.responses.create(model="tiny", input="more", previous_response_id=first.id)
            with pytest.raises(openai.NotFoundError, match="resp_9999"):
                await client.responses.create(model="tiny", input="more", previous_response_id="resp_9999")
    finally:
        assert process.stop() == 0
    assert engine.requests[-1].json["input"] == [user("hi"), message("answer 1"), user("more")]
