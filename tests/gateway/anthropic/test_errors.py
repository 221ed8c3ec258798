"""Errors before a protocol is known, in the shape of who asks."""

import json

import pytest

from claw_r1.gateway.anthropic.errors import anthropic_error, error_message
from claw_r1.gateway.errors import GatewayError, UpstreamRefused
from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import House
from tests.gateway.http.test_auth import AGENT_ENTRY
from tests.gateway.raw import send

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


@pytest.mark.parametrize("status", KINDS)
def test_a_status_has_its_type(status: int) -> None:
    """Clients of Anthropic's decide by it."""
    body = anthropic_error(UpstreamRefused("no", status))
    assert json.loads(body) == {"type": "error", "error": {"type": KINDS[status], "message": "no"}}
    assert error_message(body) == "no"


@pytest.mark.parametrize("body", [b"", b"[]", b'{"error": {"message": "x"}}', b'{"type": "error", "error": 1}'])
def test_other_bodies_are_no_errors(body: bytes) -> None:
    """OpenAI's object least of all."""
    assert error_message(body) is None
    assert GatewayError("x").status == 500


CASES = {
    "no key": ("POST", "/t/g/v1/messages", {}, 401),
    "no key, by its header": ("GET", "/v1/models", {"anthropic_version": "2023-06-01"}, 401),
    "an unknown route": ("GET", "/t/g/v1/files", {"anthropic_version": "2023-06-01"}, 404),
    "a wrong method": ("DELETE", "/v1/models", {"anthropic_version": "2023-06-01"}, 405),
}


@pytest.mark.parametrize("name", CASES)
async def test_errors_before_a_protocol_is_known(engine: ScriptedEngine, name: str) -> None:
    """By the path or the version header; everybody else reads OpenAI's."""
    method, path, headers, status = CASES[name]
    with House(api_keys=AGENT_ENTRY if status == 401 else "") as house:
        house.worker(engine.url)
        got, reply = await send(house, method, path, None, **headers)
        assert (got, list(json.loads(reply)), json.loads(reply)["error"]["type"]) == (
            status,
            ["type", "error"],
            KINDS.get(status, "invalid_request_error"),
        )
        if headers:
            assert list(json.loads((await send(house, method, path, None))[1])) == ["error"]
