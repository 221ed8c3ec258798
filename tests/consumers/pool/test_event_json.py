"""Events as plain JSON."""

import orjson
from msgspec.structs import replace

from claw_r1.consumers.pool.event_json import as_plain
from tests.claw.events import captured


def test_packed_numbers_and_bodies_are_unpacked() -> None:
    """Ids and log-probabilities are numbers, bodies are JSON, and the whole can be dumped."""
    plain = orjson.loads(orjson.dumps(as_plain(captured(request=b'{"messages": []}'))))
    assert plain["response_ids"] == [7]
    assert plain["prompt"]["suffix"] == [1, 2]
    assert plain["request"]["suffix"] == {"messages": []}


def test_a_body_that_is_no_json_is_shown_as_bytes() -> None:
    """Whatever was captured can be shown."""
    assert as_plain(captured(reply=b"\xff\x00"))["response_body"] == {"base64": "/wA="}


def test_numbers_that_are_cut_are_shown_as_bytes() -> None:
    """A call with such is a usable fact: one of them must not end a command that prints a whole log."""
    call = captured(ids=b"\1\2\3\4\5")
    cut = replace(call, response_logprobs=b"\0", prompt=replace(call.prompt, suffix=b"\7"))
    plain = as_plain(cut)
    assert (plain["response_ids"], plain["response_logprobs"]) == ({"base64": "AQIDBAU="}, {"base64": "AA=="})
    assert plain["prompt"]["suffix"] == {"base64": "Bw=="}
