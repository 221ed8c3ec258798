"""Events for people and for JSON readers."""

import orjson

from claw_r1.claw.rendering import one_line
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


def test_a_call_on_one_line_tells_its_versions() -> None:
    """The line of a call names tokens and versions."""
    line = one_line(captured())
    assert line.startswith("CallCaptured")
    assert "tokens=2+1" in line
    assert "versions=r/3[0:1]" in line
