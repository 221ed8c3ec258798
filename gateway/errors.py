"""All refusals and failures of the gateway, and (only here) how each of them looks over HTTP.

Invariant: every error reaches the client as OpenAI's object `{"error": {"message", "type", "param", "code"}}`, or in the
shape of its own protocol, never as a traceback, and names no secret.
"""

import math

import orjson

from claw_r1.schemas.http import ORDINAL_TAKEN

HeaderList = list[tuple[bytes, bytes]]
CLIENT_CLOSED = 499
"""Status, in metrics and events only, of a call whose client closed its connection."""


class GatewayError(Exception):
    """One request could not be answered as asked. Class attributes say how that looks to the client."""

    status = 500
    type = "server_error"
    code = "internal_error"

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: float | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.code = code or type(self).code


class InvalidRequest(GatewayError):
    """The client must change its request."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class Unusable(GatewayError):
    """The body is well formed, but its content cannot be stored."""

    status = 422
    type = "invalid_request_error"
    code = "unusable"


class Unauthorized(GatewayError):
    """No valid API key."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class Forbidden(GatewayError):
    """The key's role is insufficient; or, without keys, the request is not from this machine."""

    status = 403
    type = "permission_error"
    code = "forbidden"


class NotFound(GatewayError):
    """The route does not exist, or no server has the model."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"


class MethodNotAllowed(GatewayError):
    """The route exists, but not for this method."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class BodyTooLarge(GatewayError):
    """The body is over its limit."""

    status = 413
    type = "invalid_request_error"
    code = "body_too_large"


class UnknownEncoding(GatewayError):
    """The body has an unsupported content encoding."""

    status = 415
    type = "invalid_request_error"
    code = "unknown_encoding"


class HeadersTooLarge(GatewayError):
    """The headers are over their limit."""

    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"


class RequestTimeout(GatewayError):
    """The client was too slow to send its request."""

    status = 408
    type = "invalid_request_error"
    code = "request_timeout"


class NotAdmitted(GatewayError):
    """The run has as many groups under way as its staleness bound allows."""

    status = 429
    type = "rate_limit_error"
    code = "not_admitted"


class OrdinalTaken(GatewayError):
    """Another request has opened the group of this ordinal: its runner plays it."""

    status = 409
    type = "invalid_request_error"
    code = ORDINAL_TAKEN


class GroupOfOtherRun(GatewayError):
    """Another run has opened the group: its room, its data."""

    status = 409
    type = "invalid_request_error"
    code = "group_of_other_run"


class KeyOfOtherBody(GatewayError):
    """The idempotency key was used for another request."""

    status = 409
    type = "invalid_request_error"
    code = "idempotency_key_reused"


class Overloaded(GatewayError):
    """The limit on calls in flight is reached."""

    status = 503
    type = "overloaded_error"
    code = "overloaded"


class NotCaptured(GatewayError):
    """The log did not acknowledge the call in time, so its reply is kept back. A retry publishes the same event."""

    status = 503
    code = "not_captured"


class UpstreamFailed(GatewayError):
    """No usable reply came from any engine; `code` is the reason that CallFailed carries."""

    status = 502
    type = "upstream_error"
    code = "upstream_failed"


class UpstreamRefused(UpstreamFailed):
    """An engine refuses the call (4xx): the client must change its request."""

    code = "refused"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class NoWorker(UpstreamFailed):
    """No worker became live within the wait."""

    status = 503
    code = "no_worker"


class UpstreamUnreachable(UpstreamFailed):
    """The engine does not accept connections."""

    code = "upstream_unreachable"


class UpstreamBroken(UpstreamFailed):
    """The connection broke, the engine failed, or its reply makes no sense."""

    code = "upstream_broken"


class UpstreamTimeout(UpstreamFailed):
    """The reply did not come within the deadline."""

    status = 504
    code = "upstream_timeout"


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


def error_headers(error: GatewayError) -> HeaderList:
    """The headers that go with an error's body."""
    headers = [(b"content-type", b"application/json")]
    if error.retry_after_s is not None:
        # The header holds whole seconds (RFC 9110); clients that can wait less read the body.
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))))
    return headers


def error_body(error: GatewayError) -> bytes:
    """The gateway's own error object."""
    content: dict[str, str | float | None] = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    if error.retry_after_s is not None:
        content["retry_after_s"] = error.retry_after_s
    return orjson.dumps({"error": content})
