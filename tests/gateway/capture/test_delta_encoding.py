"""Calls written against earlier ones: what comes back is what went in, whatever was remembered."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_r1.datapool.delta_decoding import bodies, prompts, resolve, resolve_all
from claw_r1.datapool.digests import base_digest
from claw_r1.datapool.errors import PromptBroken
from claw_r1.gateway.call_protocol import CallRequest, Choice, EngineReply
from claw_r1.gateway.callers.callers import Caller
from claw_r1.gateway.capture.delta_encoding import CHAIN_MAX, EVENT_BYTES_MAX, DeltaEncoder
from claw_r1.gateway.capture.events import ModelCall, captured, without_bodies
from claw_r1.gateway.capture.idempotency import Attempt
from claw_r1.gateway.headers import ClientHeaders
from claw_r1.gateway.openai.chat import ChatCompletions
from claw_r1.gateway.paths import Identity
from claw_r1.gateway.upstream.engines import Engine
from claw_r1.schemas.arrays import ITEM_BYTES, pack_floats, pack_ids
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.events import CallCaptured, Edge, Sampling, Timings, Usage

WHO = Identity("g", "t")
BIG = 1 << 30
SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0)


@dataclass
class Writer:
    """A gateway's part from a reply to its acknowledged events."""

    deltas: DeltaEncoder
    clock_us: int = 0
    made: int = 0

    def write(
        self,
        prompt: list[int],
        responses: list[list[int]],
        body: bytes = b"{}",
        *,
        who: Identity = WHO,
        headers: ClientHeaders | None = None,
        received_us: int | None = None,
        ended: bool = True,
        acknowledged: bool = True,
        call_id: str = "",
    ) -> list[CallCaptured]:
        self.clock_us += 1
        self.made += 1
        call = ModelCall(
            producer="gateway/test",
            caller=Caller(who, "path"),
            attempt=Attempt(("g", "t", ""), call_id or f"c{self.made}", 0),
            headers=headers or ClientHeaders(),
            protocol=ChatCompletions(),
            request=CallRequest(body, body, None, SAMPLING),
            request_digest=hashlib.sha256(body).hexdigest(),
            received_us=self.clock_us if received_us is None else received_us,
        )
        reply = reply_of(prompt, responses, ended)
        encoded = self.deltas.encode(call, reply)
        timings = Timings(received_us=call.received_us, dispatched_us=0, done_us=0)
        events = captured(call, Engine(url="http://e"), reply, timings, encoded)
        if acknowledged:
            self.deltas.remember(call, reply, encoded, events)
        read = [decode(encode(event)) for event in events]
        return [event for event in read if isinstance(event, CallCaptured)]


def reply_of(prompt: list[int], responses: list[list[int]], ended: bool) -> EngineReply:
    choices = [
        Choice(
            index=index,
            response_ids=pack_ids(ids),
            response_logprobs=pack_floats([-1.0] * len(ids)),
            spans=(),
            finish_reason="stop" if ended else None,
            missing=("spans",),
            aborted=not ended,
            body=b"{}",
        )
        for index, ids in enumerate(responses)
    ]
    return EngineReply(b"{}", pack_ids(prompt), tuple(choices), Usage(prompt_tokens=0, completion_tokens=0))


def digest_of(keep: int, base: CallCaptured) -> str:
    """What an edge needs of this base."""
    response = hashlib.sha256(base.response_ids).hexdigest()
    return base_digest(keep, base.prompt.full_length, base.prompt.full_digest, response)


def writer(bytes_max: int = BIG, calls_max: int = 8) -> Writer:
    return Writer(DeltaEncoder(bytes_max, calls_max))


IDS = st.lists(st.integers(0, 2) | st.just(2**31 - 1), max_size=30)
BYTES = st.binary(max_size=90) | st.sampled_from([b"\xf0\x9f", b"\xff\xfe{", '{"é":"😀"'.encode()])


@given(st.data(), st.sampled_from([0, 900, BIG]), st.sampled_from([1, 2, 8]))
@settings(max_examples=60, deadline=None)
def test_any_forest_comes_back(data: st.DataObject, bytes_max: int, calls_max: int) -> None:
    """Continued, forked, cut, summarised, parallel, with n > 1, forgotten or restarted: ids and bodies are the originals."""
    write = writer(bytes_max, calls_max)
    wholes: list[tuple[list[int], bytes]] = [([], b"")]
    events: dict[str, CallCaptured] = {}
    truth: dict[str, tuple[bytes, bytes]] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.integers(0, 9)) == 0:
            write.deltas = DeltaEncoder(bytes_max, calls_max)  # a restart
        start, body_start = data.draw(st.sampled_from(wholes))
        cut, body_cut = data.draw(st.integers(0, len(start))), data.draw(st.integers(0, len(body_start)))
        prompt = (start if data.draw(st.booleans()) else start[:cut]) + data.draw(IDS)
        tail = data.draw(st.sampled_from([b"", body_start[body_cut:], b'],"tools":' + b"t" * 80 + b"}"]))
        body = (body_start if data.draw(st.booleans()) else body_start[:body_cut]) + data.draw(BYTES) + tail
        responses = data.draw(st.lists(IDS, min_size=1, max_size=2))
        made = write.write(
            prompt,
            responses,
            body,
            ended=data.draw(st.booleans()),
            acknowledged=data.draw(st.booleans()),
            received_us=data.draw(st.none() | st.integers(0, 20)),
        )
        for event, response in zip(made, responses, strict=True):
            events[event.call_id] = event
            base = event.prompt.base_call_id
            assert event.base_digest == ("" if base is None else digest_of(event.prompt.keep, events[base]))
            truth[event.call_id] = (pack_ids(prompt), body)
            if (against := event.request.base_call_id) is not None:
                kept = event.request.keep + event.request.keep_end
                assert kept <= min(len(body), events[against].request.full_length)
            wholes.append((prompt + response, body))
    assert {call_id: whole for call_id, (whole, _) in truth.items()} == prompts(events)
    assert {call_id: body for call_id, (_, body) in truth.items()} == bodies(events)
    assert 0 <= write.deltas.size_bytes <= bytes_max


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_what_was_not_acknowledged_is_no_base(data: st.DataObject) -> None:
    """Whatever calls never reached the log, the others come back whole; and in order of arrival."""
    write = writer()
    ids: list[int] = []
    stored: OrderedDict[str, CallCaptured] = OrderedDict()
    for turn in range(10):
        acknowledged = data.draw(st.booleans())
        (event,) = write.write([*ids, turn] * 1, [[turn] * 20], b"x" * 100, acknowledged=acknowledged)
        ids += [turn] + [turn] * 20
        if acknowledged:
            assert event.prompt.base_call_id in (None, *stored)
            stored[event.call_id] = event
    assert set(prompts(stored)) == set(bodies(stored)) == set(stored)


def test_a_growing_conversation_is_written_once() -> None:
    """Each call holds its new tokens only, every 64th all of them; one tip is remembered, not forty."""
    write = writer()
    ids, suffixes = [1] * 50, []
    for turn in range(130):
        (event,) = write.write(ids, [[turn] * 10], b"m" * len(ids))
        suffixes.append(len(event.prompt.suffix) // ITEM_BYTES)
        ids = [*ids, *[turn] * 10, 7, 8]
    full = [turn for turn, length in enumerate(suffixes) if length != 2]
    assert full == [0, CHAIN_MAX, 2 * CHAIN_MAX]
    assert write.deltas.size_bytes < 5 * (4 * len(ids) + len(ids) + 200)


def test_a_lost_base_takes_only_what_stands_on_it() -> None:
    """Without one call, the calls before it and beside it are whole still."""
    write = writer()
    ids, events = [1] * 20, {}
    for turn in range(5):
        (event,) = write.write(ids, [[turn] * 20], b"{}")
        events[event.call_id] = event
        ids = [*ids, *[turn] * 20]
    (other,) = write.write([9] * 40, [[1]])
    events[other.call_id] = other
    del events["c3"]
    assert set(prompts(events)) == {"c1", "c2", "c6"}


@pytest.mark.parametrize("headers", [ClientHeaders(), ClientHeaders(idempotency_key="k", retry_count=0)])
def test_an_edge_keeps_all_of_its_base_or_its_prompt_at_most(headers: ClientHeaders) -> None:
    """What an agent evidently goes on with is kept whole and named; else no id of a response that another may replace."""
    for rest, keep in (([2] * 30 + [3], 60), ([2] * 20 + [5] * 30, 30), ([5] * 30, 30)):
        write = writer()
        (base,) = write.write([1] * 30, [[2] * 30], headers=headers)
        (event,) = write.write([1] * 30 + rest, [[4]], headers=headers)
        assert (event.prompt.keep, event.base_digest) == (keep, digest_of(keep, base))
    assert event.base_digest == base.prompt.full_digest, "which every attempt of it has"


def test_another_attempt_of_a_call_is_not_written_against_itself_nor_what_follows() -> None:
    """The pool may count this attempt, and what was written against the first one: neither may hold the other up."""
    keyed = ClientHeaders(idempotency_key="k")
    for headers in (ClientHeaders(retry_count=1), keyed):
        write = writer()
        write.write([1] * 30, [[2] * 30, [3] * 30], call_id="x", headers=headers)
        (again,) = write.write([1] * 30, [[5] * 30], call_id="x", headers=headers)
        assert again.prompt.base_call_id is None
    write = writer()
    write.write([1] * 30, [[2] * 30], call_id="x", headers=keyed)
    write.write([1] * 30 + [2] * 30, [[3] * 30], call_id="y", headers=keyed)
    (again,) = write.write([1] * 30, [[5] * 30], call_id="x", headers=keyed)
    assert again.prompt.base_call_id is None


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_whichever_attempts_count_only_what_kept_another_response_is_lost(data: st.DataObject) -> None:
    """Calls under keys, asked again at either of two gateways in any order, each with a reply of its own: of any choice of
    one attempt for each call, every prompt comes back but those that stand on the response of an attempt not chosen."""
    writers = writer(), writer()
    asked: list[tuple[list[int], bytes]] = []
    attempts: dict[str, list[CallCaptured]] = {}
    wholes: list[list[int]] = [[7] * 20]
    for clock_us in range(1, data.draw(st.integers(2, 14))):
        if data.draw(st.booleans()) or not asked:
            prompt = data.draw(st.sampled_from(wholes)) + [data.draw(st.integers(0, 2))] * data.draw(st.integers(0, 2))
            asked.append((prompt, data.draw(BYTES)))
        number = data.draw(st.integers(0, len(asked) - 1))
        prompt, body = asked[number]
        response = [data.draw(st.integers(0, 2))] * data.draw(st.integers(0, 20))
        (event,) = data.draw(st.sampled_from(writers)).write(
            prompt,
            [response],
            body,
            headers=ClientHeaders(idempotency_key="k"),
            received_us=clock_us,
            call_id=f"call{number:02}",
        )
        attempts.setdefault(event.call_id, []).append(event)
        wholes.append(prompt + response)
    chosen = {call_id: data.draw(st.sampled_from(events)) for call_id, events in attempts.items()}
    whole = {f"call{number:02}": pack_ids(prompt) for number, (prompt, _) in enumerate(asked)}
    back = prompts(chosen)
    assert back == {call_id: whole[call_id] for call_id in back}
    for call_id in chosen.keys() - back.keys():
        assert lost_response(chosen, call_id), f"{call_id} is lost, and every link of it holds"


def lost_response(calls: dict[str, CallCaptured], call_id: str) -> bool:
    """Whether some link down from a call needs a response that is not there."""
    for _ in calls:
        event = calls[call_id]
        base = calls[event.prompt.base_call_id or call_id]
        if event.prompt.base_call_id and event.base_digest != digest_of(event.prompt.keep, base):
            assert event.prompt.keep > base.prompt.full_length, "every attempt has the prompt"
            return True
        call_id = base.call_id
    return False


def test_a_lane_of_its_own_takes_no_memory() -> None:
    """A call without identity is alone in its trajectory: nothing will go on from it."""
    write = writer()
    write.write([1] * 30, [[2] * 30], who=Identity("lane-1", "lane-1", named=False))
    assert write.deltas.size_bytes == 0


def test_what_is_no_base() -> None:
    """Aborted calls, calls received later, calls of other trajectories, and events too large for their bodies."""
    for how in ({"ended": False}, {"received_us": 99}, {"who": Identity("g", "u")}, {"body": b"x" * EVENT_BYTES_MAX}):
        write = writer()
        write.write([1] * 30, [[2] * 30], **how)
        (event,) = write.write([1] * 30 + [2] * 30, [[3]])
        assert event.prompt.base_call_id is None, how


def test_without_token_ids_bodies_are_deltas_still() -> None:
    """A provider that gives no ids: the body that shares the most is the base."""
    write = writer()
    write.write([], [[]], b"a" * 500)
    (event,) = write.write([], [[]], b"a" * 500 + b"b")
    assert (event.request.base_call_id, event.request.suffix) == ("c1", b"b")
    assert (event.prompt.base_call_id, event.prompt.suffix) == (None, b"")


TOOLS = b'],"tools":[' + b'{"type":"function"},' * 500 + b'{}],"stream":true}'


@pytest.mark.parametrize(
    ("base", "body", "suffix"),
    [
        (b"[1" + TOOLS, b"[1,2" + TOOLS, b",2"),  # grows before its tools
        (b"[1" + TOOLS, b"[9" + TOOLS, b"9"),  # rewritten before them
        (b"x" * 300, b"x" * 301, b"x"),  # beginning and end overlap
        (b"x" * 301, b"x" * 300, b""),
        (b"x" * 300, b"x" * 300, b""),
        (b"ab" * 100, b"ab" * 150, b"ab" * 50),
        (b"y" + b"x" * 63, b"z" + b"x" * 63, None),  # not worth a dependence
        (b"", b"x" * 100, None),
    ],
)
def test_a_body_keeps_both_ends_of_its_base(base: bytes, body: bytes, suffix: bytes | None) -> None:
    """What stands between them is written; no byte is taken twice, and what comes back is what was sent."""
    write = writer()
    (first,) = write.write([1] * 30, [[2] * 30], base)
    (event,) = write.write([1] * 30 + [2] * 30, [[3]], body)
    edge = event.request
    assert (edge.suffix, edge.base_call_id) == ((body, None) if suffix is None else (suffix, "c1"))
    assert edge.keep + edge.keep_end + len(edge.suffix) == len(body)
    assert edge.keep + edge.keep_end <= len(base)
    assert bodies({"c1": first, "c2": event})["c2"] == body
    if suffix is not None:
        assert set(bodies({"c2": event})) == set(), "without its base nothing comes out"


def test_of_bodies_without_ids_the_base_is_the_one_that_saves_most() -> None:
    """A sub-agent with the tools of its parent, and a title without any: the ends decide as the beginnings do."""
    write = writer()
    write.write([], [[]], b"[first" + TOOLS)
    write.write([], [[]], b"[title, a longer beginning" * 4)
    (event,) = write.write([], [[]], b"[title, a longer beginning" * 3 + TOOLS)
    assert (event.request.base_call_id, event.request.keep_end) == ("c1", len(TOOLS))


def test_an_event_without_its_bodies_promises_nothing() -> None:
    """What is left of a request that no record could hold does not look like the rest of a base."""
    write = writer()
    write.write([1] * 30, [[2]], b"a" * 500)
    (event,) = write.write([1] * 31, [[2]], b"a" * 200 + b"b" + b"a" * 300)
    bare = without_bodies(event).request
    assert (bare.base_call_id, bare.keep, bare.keep_end, bare.suffix, bare.full_length) == (None, 0, 0, b"", 501)
    assert bodies({event.call_id: without_bodies(event)}) == {}


def edge(whole: bytes, keep: int, base: str | None) -> Edge:
    return Edge(
        base_call_id=base,
        keep=keep,
        suffix=whole[keep:],
        full_length=len(whole),
        full_digest=hashlib.sha256(whole).hexdigest(),
    )


def test_resolve_refuses_what_is_not_as_promised() -> None:
    """Another base, another length, no base: nothing comes out."""
    good = edge(b"abcd", 2, "b")
    assert resolve(good, b"abx", 1) == b"abcd"
    for base in (None, b"", b"a", b"xb"):
        with pytest.raises(PromptBroken):
            resolve(good, base, 1)


def test_circles_and_long_chains_end() -> None:
    """Edges that go in a circle give nothing; a chain deeper than the stack is followed."""
    assert resolve_all({"a": edge(b"x", 1, "b"), "b": edge(b"x", 1, "a"), "c": edge(b"x", 1, "c")}, 1) == {}
    chain = {f"c{n}": edge(b"x", 1, f"c{n - 1}") if n else edge(b"x", 0, None) for n in range(5000)}
    assert len(resolve_all(dict(reversed(chain.items())), 1)) == 5000
