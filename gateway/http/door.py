"""The door that every request passes, once: key, route and size before its body is read; errors, metrics and the log line after.

Invariant: nothing behind the door sees a request without a valid key, or the key; whatever goes wrong there, the client
gets a reply or its connection ends, and the next request is served. What a request took of `held_bytes` is given back when
it is over. A request that finds no room is refused; a reply never is, since an engine has worked for it: it counts, and
keeps new requests out. Limits of one request times the number of requests would be more than any memory.

A request is refused where its limit is: requests behind each other in `connection.py`, key and route here, bytes in `exchange.py`,
calls in flight in `capture/calls.py`, members of a group in `control/crowding.py`, groups in `control/admission.py`.
"""

import time
from collections.abc import Awaitable, Callable

import structlog

from claw_r1.gateway.call_protocol import CallProtocol
from claw_r1.gateway.callers.scopes import require_own
from claw_r1.gateway.errors import (
    CLIENT_CLOSED,
    ClientGone,
    GatewayError,
    HeaderList,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
)
from claw_r1.gateway.headers import CALL_ID, overhead
from claw_r1.gateway.http.auth import KeyRing, require
from claw_r1.gateway.http.exchange import Exchange
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.paths import (
    COMPLETE,
    CONTROL,
    COUNT_TOKENS,
    FEEDBACK,
    REGISTRY_PATH,
    REWARDS,
    SERVED,
    SUBMIT_STEPS,
    Route,
    names_preferences,
    not_served,
    protocol_of,
    resolve,
)
from claw_r1.gateway.protocols import Protocols
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.schemas.api_keys import Act
from claw_r1.schemas.http import REWARDS_HEADER

LOGGED_PATH_CHARACTERS_MAX = 256
OPERATOR_PATHS = ("/metrics",)
RIDING = REWARDS_HEADER.encode()
READING = (b"GET", b"HEAD", b"OPTIONS")
PROMPT_ENDPOINTS = {COUNT_TOKENS: "count_tokens", SUBMIT_STEPS: "submit_steps"}
"""Control routes whose bodies are as large as those of model calls, and their names in metrics."""
log = structlog.get_logger()


class Door:
    """`calls` answers model calls, `control` all other requests; `rewards` stores what a request takes along."""

    def __init__(
        self,
        settings: GatewaySettings,
        keys: KeyRing,
        metrics: Metrics,
        calls: Callable[[Exchange, CallProtocol], Awaitable[None]],
        control: Callable[[Exchange], Awaitable[None]],
        rewards: Callable[[Exchange, bytes], Awaitable[None]],
        protocols: Protocols,
    ) -> None:
        self.settings, self.held_bytes = settings, 0
        """Bytes of request bodies from their first byte, and of replies until they are with their clients."""
        self.body_bytes_max = max(settings.body_bytes_max, settings.control_bytes_max)
        """The limit for a request that nobody has looked at yet."""
        self._keys, self._metrics, self._calls, self.control = keys, metrics, calls, control
        self._protocols, self._rewards = protocols, rewards

    def admit(self, exchange: Exchange) -> None:
        """Look at a request's head, before its body is read. Raises GatewayError."""
        head, settings = exchange.head, self.settings
        if sum(name == b"host" for name, _ in head.headers) > 1:
            raise InvalidRequest("a request has one Host header", param="host")
        if CONTROL.search(exchange.path):  # of which FastAPI's patterns overlook one: a new line at the end
            raise InvalidRequest("a path must hold no control characters", param="path")
        exchange.protocol = protocol_of(head.path, self._protocols) if head.method == b"POST" else None
        exchange.key, exchange.headers = self._keys.checked(exchange.path, head.headers)
        exchange.label = exchange.protocol.name if exchange.protocol else "control"
        exchange.body_bytes_max = settings.body_bytes_max if exchange.is_call else settings.control_bytes_max
        exchange.route = route = route_of(exchange, self._protocols)
        if route is not None and route.endpoint in PROMPT_ENDPOINTS:
            exchange.body_bytes_max, exchange.label = settings.body_bytes_max, PROMPT_ENDPOINTS[route.endpoint]
        require(exchange.key, act_of(exchange))
        if rewards_of(exchange) is not None:
            _require_riding(exchange)
        if route is not None and route.needs_identity and route.identity is not None:
            require_own(exchange.key, trajectory_id=route.identity.trajectory_id, group_id=route.identity.group_id)

    async def answer(self, exchange: Exchange) -> None:
        """Answer a request, and let go of what it holds once its client has the reply."""
        try:
            await self._answer(exchange)
            await exchange.drain()
        finally:
            exchange.finish()
            exchange.release()

    def refuse(self, exchange: Exchange, error: GatewayError) -> None:
        """Answer a request whose turn it is, and that is not begun, with an error."""
        self._reply_error(exchange, error)
        self._record(exchange)

    def refuse_unreadable(self, exchange: Exchange, error: GatewayError) -> None:
        """Answer a request that its connection cannot read to the end. It is no call yet, so it has no overhead."""
        exchange.label, exchange.keep_alive = "refused", False
        exchange.reply_error(error)
        exchange.release()
        self._record(exchange)

    def record_disconnect(self, exchange: Exchange) -> None:
        """A client closed its connection before its request was whole."""
        exchange.status = CLIENT_CLOSED
        self._record(exchange)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            await self._handle(exchange)
        except ClientGone:
            pass
        except GatewayError as error:
            self._reply_error(exchange, error)
        except Exception:  # the client gets an answer, the operator the trace, the next request is served
            log.exception("bug_in_request")
            self._reply_error(exchange, GatewayError("internal error"))
        finally:
            if exchange.disconnected:
                exchange.status = CLIENT_CLOSED
            elif not exchange.complete:
                exchange.abort()
            if exchange.is_call:
                self._metrics.request_seconds.observe(time.perf_counter() - exchange.started_s)
            self._record(exchange)

    async def _handle(self, exchange: Exchange) -> None:
        if (riding := rewards_of(exchange)) is not None:
            await self._rewards(exchange, riding)
        if exchange.protocol is not None and exchange.route is not None:
            await self._calls(exchange, exchange.protocol)
        else:
            await self.control(exchange)

    def _reply_error(self, exchange: Exchange, error: GatewayError) -> None:
        headers: HeaderList = []
        if exchange.call_id is not None:
            headers.append((CALL_ID, exchange.call_id.encode()))
        if exchange.is_call:
            headers.append(overhead(time.perf_counter() - exchange.started_s - exchange.upstream_s))
        exchange.reply_error(error, headers)

    def _record(self, exchange: Exchange) -> None:
        self._metrics.request(exchange.label, exchange.status)
        if self.settings.access_log:
            _log_request(exchange)


def _log_request(exchange: Exchange) -> None:
    """One line for a request that is over. It holds no body, query or header of the client."""
    log.info(
        "request",
        method=exchange.head.method.decode("ascii") or None,
        path=exchange.path[:LOGGED_PATH_CHARACTERS_MAX],
        status=exchange.status or None,
        ms=round(1000 * (time.perf_counter() - exchange.started_s), 2),
        reply_bytes=exchange.sent_bytes,
        call_id=exchange.call_id,
    )


def act_of(exchange: Exchange) -> Act:
    """Returns the act of a request, for the table of roles. A look-up in the registry may be a POST, and changes
    nothing either."""
    if exchange.is_call:
        return "call"
    endpoint = exchange.route.endpoint if exchange.route is not None else None
    if endpoint == REWARDS:
        return "judge"
    if endpoint == FEEDBACK or (
        endpoint is None and exchange.head.method == b"POST" and names_preferences(exchange.path)
    ):
        return "speak"
    if exchange.path.rstrip("/") in OPERATOR_PATHS:
        return "operate"
    reads = exchange.head.method in READING or (endpoint is None and exchange.path.startswith(f"{REGISTRY_PATH}/"))
    return "read" if reads else "live"


def rewards_of(exchange: Exchange) -> bytes | None:
    """The rewards that a request takes along; None: none. Several such headers are no JSON together."""
    values = [value for name, value in exchange.headers if name == RIDING]
    return b",".join(values) if values else None


def _require_riding(exchange: Exchange) -> None:
    """Raises Forbidden for a key that may not judge, InvalidRequest for a request that takes no rewards along: they would be lost."""
    route = exchange.route
    takes = exchange.is_call or (route is not None and route.endpoint == COMPLETE and exchange.head.method == b"POST")
    if route is None or route.identity is None or route.lone or not takes:
        raise InvalidRequest(
            "rewards ride with a model call or a completion whose path names trajectory and group", param=REWARDS_HEADER
        )
    require(exchange.key, "judge")
    require_own(exchange.key, trajectory_id=route.identity.trajectory_id, group_id=route.identity.group_id)


def route_of(exchange: Exchange, protocols: Protocols) -> Route | None:
    """The endpoint that a path names; None: FastAPI knows the path, or nobody. Raises GatewayError for what is not served."""
    path = exchange.head.path
    route = resolve(path, protocols)
    if route is None:
        if protocol_of(path, protocols) is not None:
            raise NotFound(f"no such route: {SERVED}")
        if (refusal := not_served(path)) is not None:
            raise refusal
    elif route.protocol is not None:
        if not exchange.is_call:
            raise MethodNotAllowed("model calls are POST requests")
    elif route.identity is None and route.needs_identity:
        raise NotFound("the path must name a trajectory: /{trajectory_id}/{group_id}/v1/…")
    return route
