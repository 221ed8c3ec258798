"""Model calls end to end: what the client sees, what the engine sees, what the log holds."""

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Iterator

import aiohttp
import pytest
from msgspec.structs import replace

from claw_r1.gateway.capture.events import without_bodies
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.gateway.upstream.dispatch import POLL_S
from claw_r1.gateway.upstream.engines import EngineTable
from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from claw_r1.schemas.envelopes import decision_id
from claw_r1.schemas.events import VersionSpan
from tests.gateway.engine import Reply, ScriptedEngine, completion, whole, written
from tests.gateway.house import ASK, PATH, House, ask, report
from tests.gateway.packed import choice, generation
from tests.patience import until, until_async


async def test_captures_the_engines_own_tokens(house: House) -> None:
    """Ids, log-probabilities, spans and both bodies are in the log when the client has its reply."""
    reply = await ask(house, {**ASK, "temperature": 0.7}, agent="solver", channel="val", tags="a, b", run_id="run")
    (event,) = house.captured
    assert (event.group_id, event.trajectory_id, event.attempt) == ("g1", "t1", 0)
    assert unpack_ids(event.prompt.suffix) == [1, 5, 6, 7]
    assert event.prompt.full_length == 4
    assert event.prompt.full_digest == hashlib.sha256(event.prompt.suffix).hexdigest()
    assert unpack_ids(event.response_ids) == [11, 12, 2]
    assert unpack_floats(event.response_logprobs) == [-0.5] * 3
    assert event.spans == (VersionSpan(run_id="run", version=3, start=0, end=3),)
    assert event.sampling.temperature == 0.7
    assert event.integrity.complete
    assert event.response_body == reply.body
    assert json.loads(event.request.suffix) == {**ASK, "temperature": 0.7}
    assert (event.agent, event.channel, event.tags, event.envelope.run_id) == ("solver", "val", ("a", "b"), "run")
    assert (event.worker_id, event.model_id, event.status) == ("w0", "model-a", "completed")
    times = event.timings
    assert times.received_us <= times.dispatched_us <= times.done_us


async def test_tells_the_client_where_its_call_is(house: House) -> None:
    """Reply headers name group, trajectory, call, version and the gateway's own time."""
    reply = await ask(house)
    assert reply.headers["x-claw-group"] == "g1"
    assert reply.headers["x-claw-trajectory"] == "t1"
    assert reply.headers["x-claw-call-id"] == house.captured[0].call_id
    assert reply.headers["x-claw-policy-version"] == "run/3"
    assert 0 < float(reply.headers["x-claw-overhead-ms"]) < 1000


async def test_an_engine_gets_what_its_client_wrote(house: House, engine: ScriptedEngine) -> None:
    """To the byte, long numbers too; a header asks for what was sampled, and another tells the call id."""
    data = b'{ "messages": [], "model":"tiny", "x": [1.10, "\xc3\xbc"], "user": 123456789012345678901234567890, "stop": 5}\n'
    assert (await ask(house, data)).status == 200
    (received,) = engine.requests
    assert (received.path, received.body) == ("/v1/chat/completions", data)
    assert received.headers["x-claw-tokens"] == "1"
    assert received.headers["x-request-id"] == house.captured[0].call_id


@pytest.mark.parametrize("wants", [{}, {"logprobs": True}, {"return_token_ids": True, "n": 2}])
async def test_a_reply_is_the_engines_own_bytes(house: House, engine: ScriptedEngine, wants: dict[str, object]) -> None:
    """Of whatever shape, ids and log-probabilities for who asked for them included: what our worker put behind it is cut off."""
    body, made = written({**ASK, **wants})
    raw = b' {"x": 1.10e+2, "e": "\\u00e9 {", ' + json.dumps(body).encode()[1:]
    engine.then(whole(raw, made))
    assert (await ask(house, {**ASK, **wants})).body == raw
    assert all(call.integrity.complete for call in house.captured)
    assert len(house.captured) > 1 or house.captured[0].response_body == raw


async def test_each_choice_is_a_call(house: House) -> None:
    """n = 2 gives two events, the second as `<call_id>.1`, each with its own tokens, body and count."""
    reply = await ask(house, {**ASK, "n": 2})
    first, second = house.captured
    assert second.call_id == f"{first.call_id}.1"
    assert [first.choice, second.choice] == [0, 1]
    assert unpack_floats(second.response_logprobs) == [-1.5] * 3
    assert first.usage.completion_tokens == second.usage.completion_tokens == 3
    bodies = [json.loads(event.response_body) for event in (first, second)]
    assert [body["choices"] for body in bodies] == [[choice] for choice in reply.json["choices"]]
    assert first.sampling.n == 2


async def test_choices_that_share_an_index_are_told_apart(house: House, engine: ScriptedEngine) -> None:
    """No two calls have one id; a reply whose choices an engine numbered alike is stored with that as its flaw."""
    body, made = written({**ASK, "n": 3})
    for each, index in zip(body["choices"], (0, 0, 1), strict=True):
        each["index"] = index
    engine.then(whole(body, made), Reply(body))
    for handed_over in (True, False):
        reply = await ask(house, {**ASK, "n": 3}, path=f"/{handed_over}/g1/v1/chat/completions")
        assert [choice["index"] for choice in reply.json["choices"]] == [0, 0, 1]
        calls = [event for event in house.captured if event.trajectory_id == str(handed_over)]
        assert sorted(event.choice for event in calls) == [0, 1, 2]
        assert len({event.call_id for event in calls}) == 3
        assert all("choice_index" in event.integrity.missing for event in calls)


async def test_aborted_call_is_stored_as_aborted(house: House, engine: ScriptedEngine) -> None:
    """An engine that gave up says so: stored with its tokens."""
    body, _ = written(ASK)
    engine.then(whole(body, generation(choice(finish="abort"))))
    await ask(house)
    (event,) = house.captured
    assert (event.status, unpack_ids(event.response_ids)) == ("aborted", [11, 12, 2])


async def test_unacknowledged_call_is_not_shown(house: House, engine: ScriptedEngine) -> None:
    """Without acknowledgement the client gets 503 and Retry-After and no part of the reply."""
    house.log.refusing = True
    reply = await ask(house)
    assert reply.status == 503
    assert reply.headers["retry-after"] == "1"
    assert reply.json["error"]["code"] == "not_captured"
    assert b"hello" not in reply.body
    assert house.captured == []


async def test_retry_after_a_missing_acknowledgement_publishes_the_same_event(
    house: House, engine: ScriptedEngine
) -> None:
    """The retry costs no second generation: the tokens that were sampled are stored and shown."""
    house.log.refusing = True
    await ask(house, retry_count="0")
    house.log.refusing = False
    reply = await ask(house, retry_count="1")
    assert reply.status == 200
    assert len(engine.requests) == 1
    (event,) = house.captured
    assert (event.call_id, event.attempt) == (reply.headers["x-claw-call-id"], 0)


async def test_repeated_key_gets_the_captured_reply(house: House, engine: ScriptedEngine) -> None:
    """Same idempotency key, finished reply: the same bytes again, one generation, a call id that repeats; and since it is
    this reply that the agent goes on with, it is captured as the later attempt."""
    engine.then(completion({"logprobs": True, "return_token_ids": True}, text="first"))
    first = await ask(house, idempotency_key="k1")
    again = await ask(house, idempotency_key="k1", retry_count="4")
    assert first.body == again.body
    assert b"first" in again.body
    assert len(engine.requests) == 1
    one, other = house.captured
    assert one.call_id == decision_id("call", "g1", "t1", "k1")
    assert (one.attempt, other.attempt) == (0, 4)
    assert one.timings.done_us <= other.timings.received_us <= other.envelope.occurred_at_us
    assert other.envelope.causation_id == one.envelope.event_id != other.envelope.event_id
    assert replace(other, attempt=0, envelope=one.envelope, timings=one.timings) == one


async def test_a_repeat_that_is_not_acknowledged_is_not_shown(house: House, engine: ScriptedEngine) -> None:
    """As any other capture: 503, and the next try stores it."""
    await ask(house, idempotency_key="k1")
    house.log.refusing = True
    refused = await ask(house, idempotency_key="k1")
    assert (refused.status, refused.json["error"]["code"]) == (503, "not_captured")
    house.log.refusing = False
    assert (await ask(house, idempotency_key="k1")).status == 200
    assert [event.attempt for event in house.captured] == [0, 2]
    assert len(engine.requests) == 1


async def test_a_repeat_without_key_is_captured_once(house: House, engine: ScriptedEngine) -> None:
    """No other gateway can have answered such a call."""
    await ask(house, retry_count="0")
    await ask(house, retry_count="1")
    assert len(engine.requests) == len(house.captured) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_standard_header_names_a_call_too(house: House, engine: ScriptedEngine, streamed: bool) -> None:
    """`Idempotency-Key` is the same key; where both are given, ours counts."""
    body = json.dumps({**ASK, "stream": streamed}).encode()
    for headers in (
        {"Idempotency-Key": "k1"},
        {"x-claw-idempotency-key": "k1"},
        {"Idempotency-Key": "other", "x-claw-idempotency-key": "k1"},
    ):
        async with (
            aiohttp.ClientSession() as session,
            session.post(house.url + PATH, data=body, headers=headers) as got,
        ):
            assert got.status == 200
            await got.read()
    assert len(engine.requests) == 1
    assert {event.call_id for event in house.captured} == {decision_id("call", "g1", "t1", "k1")}


async def test_key_of_another_trajectory_is_another_call(house: House, engine: ScriptedEngine) -> None:
    """Idempotency keys are scoped by group and trajectory."""
    await ask(house, idempotency_key="k1")
    await ask(house, idempotency_key="k1", path="/t2/g1/v1/chat/completions")
    assert len(engine.requests) == 2
    assert len({event.call_id for event in house.captured}) == 2


async def test_key_with_another_body_is_refused(house: House) -> None:
    """A key names one call: reusing it for another body would give an agent the wrong reply."""
    await ask(house, idempotency_key="k1")
    reply = await ask(house, {**ASK, "temperature": 0.5}, idempotency_key="k1")
    assert (reply.status, reply.json["error"]["code"]) == (400, "idempotency_key_reused")


async def test_failed_attempt_and_its_retry_are_one_call(house: House, engine: ScriptedEngine) -> None:
    """After a failure the same key is the next attempt of the same call."""
    engine.then(*[Reply(b"boom", status=500)] * 3)
    assert (await ask(house, idempotency_key="k1")).status == 502
    assert (await ask(house, idempotency_key="k1", retry_count="1")).status == 200
    (failure,), (event,) = house.failed, house.captured
    assert (failure.call_id, failure.attempt) == (event.call_id, 0)
    assert event.attempt == 1


async def test_equal_calls_are_different_calls(house: House) -> None:
    """Sampling the same prompt twice, without saying that it is a retry, gives two calls."""
    await ask(house)
    await ask(house)
    assert len({event.call_id for event in house.captured}) == 2


async def test_call_without_identity_has_a_lane_of_its_own(house: House) -> None:
    """`/v1/chat/completions` is captured under a fresh trajectory, told by headers and counted apart."""
    first = await ask(house, path="/v1/chat/completions")
    second = await ask(house, path="/v1/chat/completions")
    lanes = [reply.headers["x-claw-trajectory"] for reply in (first, second)]
    assert lanes == [event.trajectory_id for event in house.captured] == [event.group_id for event in house.captured]
    assert len(set(lanes)) == 2
    assert 'claw_gateway_captured_total{lane="unnamed"} 2.0' in house.metrics.exposition().decode()


async def test_odd_ids_survive(house: House) -> None:
    """Slashes, spaces, percent signs and any script in an id are part of the id."""
    await ask(house, path="/a%2Fb%20%25/%E2%98%83/v1/chat/completions")
    assert [(event.trajectory_id, event.group_id) for event in house.captured] == [("a/b %", "☃")]


async def test_refusal_of_the_engine_reaches_the_client(house: House, engine: ScriptedEngine) -> None:
    """A 4xx goes through unchanged, and is stored as a failed call."""
    error = {"error": {"message": "too long", "type": "BadRequestError", "param": None, "code": 400}}
    engine.then(Reply(error, status=400))
    reply = await ask(house)
    assert (reply.status, reply.json) == (400, error)
    assert [(failure.reason, failure.message, failure.http_status) for failure in house.failed] == [
        ("refused", "too long", 400)
    ]


HALF_AN_EMOJI = rb'{"error": {"message": "cut \ud83d"}}'


@pytest.mark.parametrize("body", [b"", b"plain text", b'{"detail": "no"}', b"[1]", b"\xff", HALF_AN_EMOJI])
async def test_odd_refusals_get_openais_shape(house: House, engine: ScriptedEngine, body: bytes) -> None:
    """Whatever an engine writes into a 4xx, the client gets an error object, and the log says why the call failed."""
    engine.then(Reply(body, status=422))
    reply = await ask(house)
    assert reply.status == 422
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}
    assert [(failure.reason, failure.message) for failure in house.failed] == [
        ("refused", reply.json["error"]["message"])
    ]


@pytest.mark.parametrize("status", [502, 503])
async def test_engine_that_is_away_is_waited_for(house: House, engine: ScriptedEngine, status: int) -> None:
    """A paused or restarting engine costs time, not the call; more tries than resends are allowed."""
    engine.then(*[Reply(b"away", status=status)] * 5)
    assert (await ask(house)).status == 200
    assert len(house.captured) == 1
    assert house.failed == []


async def test_resends_are_not_cut_short_by_the_time_that_engines_took(engine: ScriptedEngine) -> None:
    """An engine that breaks late has worked until then: the wait for a worker is none of that."""
    engine.then(*[Reply(b"broke", status=500, delay_s=1.1)] * 2)
    with House(upstreams=engine.url, worker_wait_s=1.0, resends_max=2) as house:
        assert (await ask(house)).status == 200
    assert len(engine.requests) == 3


async def test_call_is_sent_again_when_the_connection_breaks(house: House, engine: ScriptedEngine) -> None:
    """A connection that breaks before the reply is tried again within the budget."""
    engine.then(Reply(reset=True), Reply(reset=True))
    assert (await ask(house)).status == 200
    assert len(engine.requests) == 3


async def test_call_that_breaks_engines_is_given_up(house: House, engine: ScriptedEngine) -> None:
    """After `resends_max` the client gets 502 and the log a failure: one poison call must not kill every engine."""
    engine.then(*[Reply(reset=True)] * 9)
    reply = await ask(house)
    assert (reply.status, reply.json["error"]["code"]) == (502, "upstream_broken")
    assert len(engine.requests) == 3
    assert [failure.reason for failure in house.failed] == ["upstream_broken"]


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b'"x"', b"{}", b'{"choices": []}', b'{"choices": [1]}', b'{"choices": null}', b"\xff\xfe"],
)
async def test_nonsense_from_the_engine_is_a_502(house: House, engine: ScriptedEngine, body: bytes) -> None:
    """A 200 that is no completion is a broken upstream: stored as failed, next call served."""
    engine.then(Reply(body))
    reply = await ask(house)
    assert (reply.status, reply.json["error"]["code"]) == (502, "upstream_bad_reply")
    assert [failure.reason for failure in house.failed] == ["upstream_bad_reply"]
    assert (await ask(house)).status == 200


async def test_another_worker_takes_over(house: House, engine: ScriptedEngine) -> None:
    """A worker that refuses connections is left for another one at once."""
    house.worker("http://127.0.0.1:9", worker_id="gone")
    replies = [await ask(house, path=f"/t{number}/g/v1/chat/completions") for number in range(8)]
    assert [reply.status for reply in replies] == [200] * 8
    assert {event.worker_id for event in house.captured} == {"w0"}


async def test_two_workers_that_are_gone_starve_nobody(house: House) -> None:
    """A call goes on to the worker that it has not tried, however many have failed it."""
    for number in range(2):
        house.worker(f"http://127.0.0.1:{number + 8}", worker_id=f"gone{number}")
    replies = [await ask(house, path=f"/t{number}/g/v1/chat/completions") for number in range(24)]
    assert [reply.status for reply in replies] == [200] * 24


async def test_a_worker_that_failed_gets_another_turn(engine: ScriptedEngine) -> None:
    """Once all have failed a call, each is tried again: two that restart at the same time lose nothing."""
    with ScriptedEngine() as other, House() as house:
        house.worker(engine.url)
        house.worker(other.url, worker_id="w1")
        for one in (engine, other):
            one.then(*[Reply(b"away", status=503)] * 3)
        assert (await ask(house)).status == 200
        assert sorted(len(one.requests) for one in (engine, other)) == [3, 4]


async def test_call_waits_for_the_first_worker(engine: ScriptedEngine) -> None:
    """A call that comes before any worker is answered once one reports."""
    with House(worker_wait_s=10) as house:
        waiting = [asyncio.ensure_future(ask(house, path=f"/t{number}/g/v1/chat/completions")) for number in range(50)]
        await asyncio.sleep(0.3)
        house.worker(engine.url)
        assert [reply.status for reply in await asyncio.gather(*waiting)] == [200] * 50


async def test_a_report_wakes_waiting_calls() -> None:
    """The wait ends with the report, not with a look at the clock; without a report it ends with the budget."""
    table = EngineTable(15.0)
    for _ in range(2):
        signal = table.next_report()
        assert signal is table.next_report(), "all who wait wait for one event"
        await asyncio.to_thread(table.apply, report("http://a"))
        async with asyncio.timeout(POLL_S / 2):
            await signal.wait()
    await asyncio.to_thread(table.apply, report("http://a"))  # nobody waits
    assert not table.next_report().is_set()


async def test_no_worker_is_a_503() -> None:
    """Without workers the client is told to come back, and the log why."""
    with House(worker_wait_s=0.1) as house:
        reply = await ask(house)
        assert (reply.status, reply.json["error"]["code"], reply.headers["retry-after"]) == (503, "no_worker", "1")
        assert [failure.reason for failure in house.failed] == ["no_worker"]


async def test_unknown_model_is_a_404(house: House) -> None:
    """A model that no worker has is refused at once."""
    reply = await ask(house, {**ASK, "model": "gpt-9"})
    assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")


async def test_slow_engine_is_a_504(engine: ScriptedEngine) -> None:
    """The upstream deadline holds, and a timeout is not tried again."""
    with House(upstream_timeout_s=0.2) as house:
        house.worker(engine.url)
        engine.then(Reply(hang=True))
        reply = await ask(house)
        assert (reply.status, reply.json["error"]["code"]) == (504, "upstream_timeout")
        assert len(engine.requests) == 1
        assert [failure.reason for failure in house.failed] == ["upstream_timeout"]


async def test_client_that_leaves_cancels_its_generation(house: House, engine: ScriptedEngine) -> None:
    """When the client closes its connection, the engine's connection is closed and the call stored as failed."""
    engine.then(Reply(hang=True))
    leaving = asyncio.ensure_future(ask(house))
    await asyncio.to_thread(until, lambda: engine.requests)
    leaving.cancel()
    await asyncio.to_thread(until, engine.aborted.is_set)
    await asyncio.to_thread(until, lambda: house.failed)
    assert [(failure.reason, failure.http_status) for failure in house.failed] == [("client_disconnected", 499)]
    assert house.captured == []
    assert (await ask(house)).status == 200


async def test_too_many_calls_are_refused(engine: ScriptedEngine) -> None:
    """Over the limit: 503 with Retry-After at once; the calls within it go on."""
    with House(calls_max=2) as house:
        house.worker(engine.url)
        may_end = threading.Event()
        engine.default = lambda received: Reply(completion(received.json).body, moment=may_end)
        paths = [f"/t{number}/g/v1/chat/completions" for number in range(5)]
        calls = [asyncio.ensure_future(ask(house, path=path)) for path in paths]
        await until_async(lambda: sum(call.done() for call in calls) == 3)
        may_end.set()
        replies = await asyncio.gather(*calls)
        assert sorted(reply.status for reply in replies) == [200, 200, 503, 503, 503]
        assert {reply.json["error"]["code"] for reply in replies if reply.status == 503} == {"overloaded"}


@pytest.fixture
def provider(engine: ScriptedEngine) -> Iterator[House]:
    """A gateway before one fixed upstream."""
    with House(upstreams=f"{engine.url}/v1") as running:
        yield running


async def test_fixed_upstream_without_ids_is_stored_untrainable(provider: House, engine: ScriptedEngine) -> None:
    """A provider's reply passes through; the event names what training would miss."""
    body, _ = written({"model": "m", "logprobs": True, "return_token_ids": True})
    engine.then(Reply(body))
    reply = await ask(provider, {**ASK, "model": "m"})
    assert reply.json["choices"] == body["choices"], "what nobody asked for is the provider's own, too"
    (event,) = provider.captured
    assert event.integrity.missing == ("prompt_ids", "token_ids", "logprobs", "spans")
    assert (event.worker_id, event.model_id, event.upstream) == (None, "m", f"{engine.url}/v1")


async def test_models_are_listed(house: House, provider: House) -> None:
    """GET …/v1/models works with and without ids, for workers and for fixed upstreams."""
    async with aiohttp.ClientSession() as session:
        for where in (house, provider):
            for path in ("/v1/models", "/t1/g1/v1/models", "/t1/g1/models"):
                async with session.get(where.url + path) as reply:
                    assert reply.status == 200
                    assert [model["id"] for model in (await reply.json())["data"]] == ["tiny"]


async def test_oversized_event_keeps_its_tokens(house: House, engine: ScriptedEngine) -> None:
    """A call that no record can hold is stored without its bodies, with digest and tokens."""
    engine.then(completion({"logprobs": True, "return_token_ids": True}, text="x" * (9 << 20)))
    assert (await ask(house)).status == 200
    (event,) = house.captured
    assert event.integrity.missing == ("request_body", "response_body")
    assert unpack_ids(event.response_ids) == [11, 12, 2]
    assert event.request.full_length > 0
    assert without_bodies(event).request.full_digest == event.request.full_digest


async def test_calls_in_parallel_do_not_mix(house: House, engine: ScriptedEngine) -> None:
    """Under load each event has the tokens of its own request."""
    engine.default = lambda received: completion(received.json, ids=[received.json["seed"]] * 3)
    await asyncio.gather(
        *(ask(house, {**ASK, "seed": number}, path=f"/t{number}/g/v1/chat/completions") for number in range(64))
    )
    seen = {event.trajectory_id: set(unpack_ids(event.response_ids)) for event in house.captured}
    assert seen == {f"t{number}": {number} for number in range(64)}


async def test_every_reply_tells_the_gateways_own_time(house: House, engine: ScriptedEngine) -> None:
    """Replays, refusals of the engine and errors, too; the engine's time is in none of them."""
    slow = {"delay_s": 0.3}
    engine.then(
        Reply(completion({}).body, **slow), Reply(b"no", status=400, **slow), *[Reply(b"", status=500, **slow)] * 3
    )
    replies = [await ask(house, idempotency_key=key) for key in ("k1", "k1", "k2", "k3")]
    replies.append(await ask(house, b"{"))
    assert [reply.status for reply in replies] == [200, 200, 400, 502, 400]
    assert all(0 < float(reply.headers["x-claw-overhead-ms"]) < 300 for reply in replies)


@pytest.mark.parametrize(("passed", "gets"), [(None, False), (True, True), (False, False)])
async def test_a_key_goes_to_one_provider(engine: ScriptedEngine, passed: bool | None, gets: bool) -> None:
    """With fixed upstreams on several hosts a client's credentials are passed on only where an operator said so."""
    upstreams = f"{engine.url},{engine.url.replace('127.0.0.1', 'localhost')}"
    with House(upstreams=upstreams, upstream_authorization=passed) as house:
        async with (
            aiohttp.ClientSession(headers={"authorization": "Bearer a"}) as session,
            session.post(house.url + PATH, json=ASK) as reply,
        ):
            assert reply.status == 200
    assert ("authorization" in engine.requests[0].headers) is gets
    assert GatewaySettings(upstreams="http://a/v1,http://a:81").passes_authorization  # type: ignore[arg-type]  # fields by name, of any type


async def test_overhead_excludes_the_engine(house: House, engine: ScriptedEngine) -> None:
    """`x-claw-overhead-ms` is the gateway's own time."""
    engine.then(Reply(completion({}).body, delay_s=0.5))
    started = time.monotonic()
    reply = await ask(house)
    assert float(reply.headers["x-claw-overhead-ms"]) < 1000 * (time.monotonic() - started) - 450


async def test_a_call_that_found_no_room_is_not_taken_for_another(engine: ScriptedEngine) -> None:
    """Of two equal calls at once one is refused; its retry is a call of its own, not the other one's reply."""
    with House(calls_max=1) as house:
        house.worker(engine.url)
        may_end = threading.Event()
        engine.then(Reply(completion(ASK).body, moment=may_end))
        first = asyncio.ensure_future(ask(house, retry_count="0"))
        await asyncio.to_thread(until, lambda: engine.requests)
        assert (await ask(house, retry_count="0")).status == 503
        may_end.set()
        kept = await first
        again = await ask(house, retry_count="1")
        assert (kept.status, again.status) == (200, 200)
        assert again.headers["x-claw-call-id"] != kept.headers["x-claw-call-id"]
        assert len(house.captured) == 2


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("reply", "status"), [(Reply(b"boom", status=500), 502), (Reply(b"away", status=503), 503), (Reply(hang=True), 504)]
)
async def test_a_failure_names_its_call(engine: ScriptedEngine, reply: Reply, status: int, streamed: bool) -> None:
    """502, 503 and 504 of our own carry the id under which the log has the failure."""
    engine.default = lambda _: reply
    deadline = {"upstream_timeout_s": 0.2} if reply.hang else {}
    with House(worker_wait_s=0.2, **deadline) as house:
        house.worker(engine.url)
        got = await ask(house, {**ASK, "stream": streamed})
        assert (got.status, got.headers["x-claw-call-id"]) == (status, house.failed[-1].call_id)


async def test_a_call_that_no_log_took_is_named(house: House) -> None:
    """The 503 of a call that was answered, and not captured, carries its id, too."""
    house.log.refusing = True
    refused = await ask(house, {**ASK, "n": 2})
    assert refused.status == 503
    assert refused.headers["x-claw-call-id"]


async def test_without_an_engine_the_503_names_its_call() -> None:
    """Nobody serves anything: the refusal is in the log, under this id."""
    with House(worker_wait_s=0.0) as house:
        got = await ask(house)
        assert (got.status, got.headers["x-claw-call-id"]) == (503, house.failed[-1].call_id)
