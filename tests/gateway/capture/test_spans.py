"""The span of a model call: below its client's, above its engine's, and named by the events of the call."""

import json
from collections.abc import Iterator

import aiohttp
import pytest

from claw_r1.runtime.monitoring.tracing import CONTENT, traced
from claw_r1.schemas import cloudevents
from tests.gateway.engine import Reply, ScriptedEngine, stream
from tests.gateway.house import House
from tests.otlp_receiver import Receiver

PATH = "/t/g/v1/chat/completions"
SSE = {"content-type": "text/event-stream"}
CLIENT = f"00-{0xA1:032x}-{0xB2:016x}-01"


@pytest.fixture
def otlp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with Receiver() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        yield running


async def ask(house: House, headers: dict[str, str] | None = None, *, streams: bool = False) -> int:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "secret words"}], "stream": streams}
    async with aiohttp.ClientSession() as session, session.post(house.url + PATH, json=body, headers=headers) as reply:
        await reply.read()
        return reply.status


@pytest.mark.parametrize("streams", [False, True])
async def test_a_calls_span_is_between_its_clients_and_its_engines(
    house: House, engine: ScriptedEngine, otlp: Receiver, streams: bool
) -> None:
    """The client is its parent; the engine, the event and the header of its record name it. No word of the call is in it."""
    with traced("gateway"):
        assert await ask(house, {"traceparent": CLIENT, "x-claw-run-id": "run"}, streams=streams) == 200
    (span,) = otlp.named("claw-gateway")
    own = "00-{}-{}-01".format(*span.context)
    assert (span.name, span.parent, span.failed) == ("chat tiny", CLIENT.split("-")[2], False)
    assert span.context[0] == CLIENT.split("-")[1]
    (event,) = house.captured
    assert {own} == {engine.requests[-1].headers["traceparent"], event.envelope.traceparent}
    assert cloudevents.traceparent_of(cloudevents.headers(event)) == own
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.usage.input_tokens": event.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": event.usage.completion_tokens,
        "gen_ai.response.finish_reasons": [event.finish_reason],
        "claw.call_id": event.call_id,
        "claw.run_id": "run",
        "claw.policy_version": "run/3",
        "claw.worker_id": event.worker_id,
    }
    assert {name: span.attributes.get(name) for name in expected} == expected
    assert "secret" not in str(span)


async def test_without_a_client_of_its_own_a_call_begins_a_trace(house: House, otlp: Receiver) -> None:
    with traced("gateway"):
        await ask(house)
    assert otlp.spans[0].parent == ""


@pytest.mark.parametrize(
    ("reply", "status", "reason"),
    [
        (Reply({"error": {"message": "too long"}}, status=400), 400, "refused"),
        (Reply(b"nonsense"), 502, "upstream_bad_reply"),
    ],
)
async def test_a_call_that_fails_says_why_in_its_span(
    house: House, engine: ScriptedEngine, otlp: Receiver, reply: Reply, status: int, reason: str
) -> None:
    engine.then(reply)
    with traced("gateway"):
        assert await ask(house) == status
    assert [(span.failed, span.attributes["error.type"]) for span in otlp.spans] == [(True, reason)]


async def test_a_stream_that_breaks_has_failed(house: House, engine: ScriptedEngine, otlp: Receiver) -> None:
    engine.script.append(lambda received: Reply(pieces=stream(received.json).pieces[:2], reset=True, headers=SSE))
    with traced("gateway"), pytest.raises(aiohttp.ClientError):
        await ask(house, streams=True)
    assert [(span.failed, span.attributes["error.type"]) for span in otlp.spans] == [(True, "upstream_broken")]


async def test_a_retry_that_is_answered_from_memory_has_a_span_of_its_own(house: House, otlp: Receiver) -> None:
    named = {"x-claw-idempotency-key": "k"}
    with traced("gateway"):
        assert [await ask(house, named), await ask(house, named)] == [200, 200]
    assert [span.attributes.get("claw.repeated", False) for span in otlp.spans] == [False, True]


async def test_a_call_is_told_with_its_words_to_who_asks_for_them(
    house: House, engine: ScriptedEngine, otlp: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the messages and parts of the conventions; of a client that is not sampled nothing is put together."""
    monkeypatch.setenv(CONTENT, "span_only")
    with traced("gateway"):
        assert await ask(house) == 200
        assert await ask(house, {"traceparent": CLIENT[:-2] + "00"}) == 200
    (span,) = otlp.spans
    asked, answered = (json.loads(str(span.attributes[f"gen_ai.{side}.messages"])) for side in ("input", "output"))
    assert asked == [{"role": "user", "parts": [{"type": "text", "content": "secret words"}]}]
    (event, _) = house.captured
    said = json.loads(event.response_body)["choices"][0]["message"]["content"]
    assert answered == [
        {"role": "assistant", "parts": [{"type": "text", "content": said}], "finish_reason": event.finish_reason}
    ]
    assert "claw.content_cut" not in span.attributes


async def test_a_receiver_that_hangs_fails_no_call(
    house: House, otlp: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans are lost, and the calls are captured."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "2")
    otlp.hang = True
    with traced("gateway"):
        assert [await ask(house) for _ in range(6)] == [200] * 6
    assert len(house.captured) == 6
    assert otlp.spans == []
