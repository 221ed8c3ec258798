"""OpenAI's responses as vLLM serves them: what the gateway must know of a protocol.

Only an engine that packs tokens tells them exactly; from any other the calls are stored and not trainable.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from claw_r1.gateway.call_protocol import CallRequest, EarlierCall, ReplyStream
from claw_r1.gateway.errors import GatewayError, InvalidRequest, NotFound, UpstreamBroken, error_body
from claw_r1.gateway.foreign_json import dumps, encodable, loads, rewritten
from claw_r1.gateway.openai.chat import error_message
from claw_r1.gateway.openai.request import MULTIMODAL, TEXT_PARTS, call_request, json_object
from claw_r1.gateway.openai.response_events import LAST, StreamedResponse
from claw_r1.gateway.tokens.packed_protocol import PackedProtocol, PackedStream
from claw_r1.gateway.tokens.reply import Outline
from claw_r1.gateway.tokens.sse import data_of
from claw_r1.schemas.json_values import Json

UNSUPPORTED = ("background", "conversation")
"""Fields that ask for a reply, or a past, which is kept by the server alone."""
TEXT_ITEM_PARTS = (*TEXT_PARTS, "reasoning_text", "summary_text")
TOOL_CALLS = ("function_call", "custom_tool_call")
PREVIOUS, INPUT, STORE = "previous_response_id", "input", "store"
SEQUENCE_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d{1,9})(?!\d)')


def parse_response(body: bytes) -> CallRequest:
    """Parse the body of a responses request. Raises InvalidRequest with the field at fault."""
    fields = json_object(body)
    if not isinstance(fields.get(INPUT), (str, list, type(None))):
        raise InvalidRequest("input must be a string or a list", param=INPUT)
    previous = fields.get(PREVIOUS)
    if not isinstance(previous, (str, type(None))):
        raise InvalidRequest(f"{PREVIOUS} must be a string", param=PREVIOUS)
    unsupported = next((name for name in UNSUPPORTED if fields.get(name)), None)
    if unsupported is not None:
        raise InvalidRequest(
            f"Unsupported parameter: '{unsupported}' is not supported by this gateway.",
            param=unsupported,
            code="unsupported_parameter",
        )
    request = call_request(body, fields)
    return request._replace(
        previous=previous or None,
        stored=fields.get(STORE) is not False,
        missing=(MULTIMODAL,) if _has_media(_items(fields)) else (),
    )


class Responses(PackedProtocol):
    """`POST /v1/responses`, a `CallProtocol` whose requests may go on from a reply (`ContinuedProtocol`)."""

    name = "responses"
    path = "/v1/responses"
    last = b'"response"'
    """A member of the last event, as of the first ones."""
    first_token = re.compile(rb'"delta"\s*:\s*"[^"]')
    parse = staticmethod(parse_response)
    error = staticmethod(error_body)
    error_message = staticmethod(error_message)

    def outlines(self, fields: dict[str, Json]) -> list[Outline]:
        if not isinstance(fields.get("output"), list):
            raise UpstreamBroken("the engine's reply has no output", code="upstream_bad_reply")
        return [Outline(0, _finish_reason(fields), b"")]

    def assembly(self) -> StreamedResponse:
        return StreamedResponse()

    def is_last(self, event: bytes) -> bool:
        try:
            fields = loads(data_of(event))
        except ValueError:
            return False
        return isinstance(fields, dict) and fields.get("type") in LAST and isinstance(fields.get("response"), dict)

    def open_stream(self) -> ReplyStream:
        """Opens a stream (`CallProtocol.open_stream`)."""
        return ResponseStream(self)

    def error_event(self, error: GatewayError, number: int = 0) -> bytes:
        """OpenAI's event of an error. number: its place in the stream."""
        fields = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return b"event: error\ndata: %b\n\n" % dumps({**fields, "sequence_number": number})

    def reply_id(self, reply: bytes) -> str | None:
        """Returns the id of the reply (`ContinuedProtocol.reply_id`)."""
        try:
            fields = loads(reply)
        except ValueError:
            return None
        reply_id = fields.get("id") if isinstance(fields, dict) else None
        return reply_id if isinstance(reply_id, str) else None

    def continued(self, request: CallRequest, turns: Sequence[EarlierCall] | None) -> CallRequest:
        """Continues an earlier call (`ContinuedProtocol.continued`): earlier input and output items, then this input. Instructions
        are not inherited."""
        if turns is None:
            message = f"Previous response with id '{request.previous}' not found."
            raise NotFound(message, param=PREVIOUS, code="previous_response_not_found")
        items: list[Json] = []
        for turn in turns:
            items += [*_items(_object(turn.request)), *_outputs(_object(turn.reply))]

        def go_on(fields: dict[str, Json]) -> None:
            items.extend(_items(fields))
            fields[INPUT] = items
            del fields[PREVIOUS]

        body = rewritten(request.forwarded, go_on)
        return request._replace(
            forwarded=body,
            adapted=(*request.adapted, "previous_response"),
            missing=(MULTIMODAL,) if _has_media(items) else (),
        )


class ResponseStream(PackedStream):
    """A stream whose events are numbered."""

    def error(self, error: GatewayError) -> bytes:
        """Returns an error (`ReplyStream.error`): the number is one more than the last that was sent."""
        numbers = SEQUENCE_NUMBER.findall(b"".join(self._passed))
        return Responses().error_event(error, int(numbers[-1]) + 1 if numbers else 0)


def _finish_reason(fields: dict[str, Json]) -> str | None:
    """In the pool's words."""
    status, output = fields.get("status"), fields["output"]
    if status == "incomplete":
        details = fields.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        return "length" if reason == "max_output_tokens" else encodable(reason)
    if status != "completed":
        return None if status == "in_progress" else encodable(status)
    called = any(isinstance(item, dict) and item.get("type") in TOOL_CALLS for item in output)
    return "tool_calls" if called else "stop"


def _items(fields: dict[str, Any]) -> list[Json]:  # Any: the client's
    """The input as a list of items."""
    items = fields.get(INPUT) or []
    return [{"type": "message", "role": "user", "content": items}] if isinstance(items, str) else items


def _outputs(reply: dict[str, Json]) -> list[Json]:
    """The output without empty messages, over which vLLM fails."""
    output = reply.get("output")
    listed = output if isinstance(output, list) else []
    return [item for item in listed if not (isinstance(item, dict) and item.get("content") == [])]


def _has_media(items: Sequence[Json]) -> bool:
    parts = [
        part
        for item in items
        if isinstance(item, dict)
        for name in ("content", "output")
        if isinstance(listed := item.get(name), list)
        for part in listed
    ]
    return any(isinstance(part, dict) and part.get("type") not in TEXT_ITEM_PARTS for part in parts)


def _object(raw: bytes) -> dict[str, Json]:
    try:
        fields = json.loads(raw)
    except (RecursionError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}
