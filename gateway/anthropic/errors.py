"""Anthropic's error object: `{"type": "error", "error": {"type", "message"}}`."""

import orjson

from claw_r1.gateway.errors import GatewayError, HeaderList, error_body
from claw_r1.gateway.foreign_json import object_of

PATH_ENDS = (b"/messages", b"/messages/count_tokens")
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def reads_anthropic(path: bytes, headers: HeaderList) -> bool:
    """Returns whether a client reads Anthropic's errors, by its request alone. path: as it was sent, without its query."""
    return path.endswith(PATH_ENDS) or any(name == b"anthropic-version" for name, _ in headers)


def error_body_for(path: bytes, headers: HeaderList, error: GatewayError) -> bytes:
    """An error in the shape that the client of a request reads."""
    return (anthropic_error if reads_anthropic(path, headers) else error_body)(error)


def anthropic_error(error: GatewayError) -> bytes:
    """An error as Anthropic's clients read it; its type follows from its status."""
    kind = TYPES.get(error.status) or ("invalid_request_error" if error.status < 500 else "api_error")
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": error.message}})


def error_message(body: bytes) -> str | None:
    """The message in an engine's error of this shape; None for any other body."""
    fields = object_of(body) or {}
    error = fields.get("error") if fields.get("type") == "error" else None
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else None
