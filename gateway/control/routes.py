"""Everything that is no model call, on FastAPI: groups, lifecycle, rewards, models, health, metrics.

The door has looked at key, path and size; the whole body and the identity of the path come with the scope (`http/asgi.py`).
"""

import asyncio
import importlib.metadata
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import structlog
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from claw_r1.eventlog.errors import LogError, RecordTooLarge
from claw_r1.eventlog.known_keys import KnownKeys
from claw_r1.gateway.anthropic.errors import error_body_for
from claw_r1.gateway.callers.scopes import own_id, require_own, scope_of, silence_s
from claw_r1.gateway.capture.durable_log import EventSink
from claw_r1.gateway.capture.recent_replies import RecentReplies
from claw_r1.gateway.control.admission import AdmissionView, Wait
from claw_r1.gateway.control.bodies import (
    AssignReward,
    CompleteTrajectory,
    NameBody,
    OpenGroup,
    RegisterTrajectory,
    channel_of,
    group_id_of,
    group_opened,
    not_valid,
    numbered,
    reward_assigned,
    rewards_in,
    run_of,
    strict_json,
    trajectory_completed,
    trajectory_started,
)
from claw_r1.gateway.control.count_tokens import TokenCounting
from claw_r1.gateway.control.crowding import Crowds
from claw_r1.gateway.control.direct_routes import RouteHandler
from claw_r1.gateway.control.feedback import FeedbackRoutes, as_speaker
from claw_r1.gateway.control.health import Health
from claw_r1.gateway.control.idempotency_keys import KeyedBodies
from claw_r1.gateway.control.models import Models
from claw_r1.gateway.control.reward_sources import AGENT, RewardSources, refuse_revision
from claw_r1.gateway.control.submit_steps import SubmitSteps, step_events
from claw_r1.gateway.errors import (
    BodyTooLarge,
    GatewayError,
    GroupOfOtherRun,
    InvalidRequest,
    MethodNotAllowed,
    NotAdmitted,
    NotCaptured,
    NotFound,
    OrdinalTaken,
)
from claw_r1.gateway.headers import ClientHeaders, client_headers
from claw_r1.gateway.http.asgi import IDENTITY, KEY, asgi_scope
from claw_r1.gateway.http.exchange import Exchange
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.paths import SERVED, Identity
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.schemas.api_keys import ApiKey
from claw_r1.schemas.envelopes import decision_id, new_id, now_us
from claw_r1.schemas.events import Event, RewardAssigned, TrajectoryCompleted, TrajectoryStarted
from claw_r1.schemas.http import Channel
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS, Topic

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
log = structlog.get_logger()


class Control:
    """The handlers. Each makes an event of a body, and replies once the event is acknowledged."""

    def __init__(
        self,
        settings: GatewaySettings,
        sink: EventSink,
        admission: AdmissionView,
        metrics: Metrics,
        crowds: Crowds,
        recent_replies: RecentReplies,
        keys: KnownKeys,
    ) -> None:
        self._sink, self._admission, self._metrics, self._crowds = sink, admission, metrics, crowds
        self._orders, self._recent_replies, self._keys = admission.orders, recent_replies, keys
        self.producer = f"gateway/{settings.instance}"
        self._public_url = settings.public_url
        self._sources = RewardSources(settings.reward_sources)
        self._retry_after_s = settings.admission_retry_after_s
        self.keyed = KeyedBodies()

    def frequent(self) -> dict[bytes, RouteHandler]:
        """Returns the handlers of what agents ask for at each episode, by path."""
        return {
            b"/groups": self.open_group,
            b"/v1/groups": self.open_group,
            b"/v1/register_trajectory": self.register_trajectory,
            b"/v1/complete_trajectory": self.complete_trajectory,
            b"/v1/rewards": self.assign_reward,
        }

    async def open_group(self, request: Request, body: OpenGroup | None = None) -> JSONResponse:
        body, headers = body or OpenGroup(), _headers(request)
        refuse_revision(request.scope[KEY], body.revision)
        group_id = group_id_of(body, headers, request.scope[KEY])
        run_id = run_of(body, headers)
        takes_room = body.admission and channel_of(body, headers) == Channel.TRAIN
        event = group_opened(body, group_id, headers, self.producer)
        if self._orders.is_taken(event):
            raise OrdinalTaken(f"ordinal {body.ordinal} was opened by another request", param="ordinal")
        claimed = self._claim(run_id, group_id, takes_room=takes_room)
        self._orders.note(event)
        try:
            await self.publish(CALLS, group_id, event)
        except NotCaptured:
            if run_id is not None and claimed:
                self._admission.release(run_id, group_id)
            raise
        self._crowds.declared(group_id)
        return JSONResponse({"group_id": group_id}, status_code=201)

    async def next_ordinal(self, request: Request, order: str) -> JSONResponse:
        require_own(request.scope[KEY], order=order)
        try:
            await asyncio.to_thread(self._orders.read_unfolded)
        except LogError as error:
            raise NotCaptured(f"the log cannot be read to its end: {error}", retry_after_s=1.0) from error
        return JSONResponse({"next_ordinal": self._orders.next_ordinal(order)})

    async def task_returns(self, request: Request, order: str) -> JSONResponse:
        require_own(request.scope[KEY], order=order)
        return JSONResponse({"tasks": await asyncio.to_thread(self._orders.task_returns, order)})

    async def list_calls(self, request: Request) -> JSONResponse:
        return JSONResponse({"calls": self._recent_replies.of(_identity(request))})

    async def register_trajectory(self, request: Request, body: RegisterTrajectory | None = None) -> JSONResponse:
        body, who = body or RegisterTrajectory(), self._member(request)
        refuse_revision(request.scope[KEY], body.revision)
        if body.idle_s is None:  # the app's key need not be the one whose session it is
            keys = [key for key in (request.scope[KEY], *self._keys.known()) if key is not None]
            body = body.model_copy(update={"idle_s": silence_s(keys, who.trajectory_id)})
        event = trajectory_started(body, who, _headers(request), self.producer)
        return await self._accept(CALLS, who, event)

    async def complete_trajectory(self, request: Request, body: CompleteTrajectory | None = None) -> JSONResponse:
        body, who = body or CompleteTrajectory(), self._member(request)
        refuse_revision(request.scope[KEY], body.revision)
        if body.reward is not None:
            self._sources.require(request.scope[KEY], AGENT)
        event = trajectory_completed(body, who, _headers(request), self.producer)
        return await self._accept(CALLS, who, event)

    async def assign_reward(self, request: Request, body: AssignReward) -> JSONResponse:
        who = _identity(request)
        reward = self._reward(body, who, request.scope[KEY], _headers(request))
        self.keyed.note(*reward.keyed)
        return await self._accept(REWARDS, who, reward.event)

    async def take_rewards(self, exchange: Exchange, riding: bytes) -> None:
        """Stores the rewards that a request takes along; where one is refused, none. The n-th is what a request of its own
        under the key `<idempotency key>#<n>` would be. Raises as `assign_reward`."""
        request = Request(asgi_scope(exchange))
        who, headers = _identity(request), _headers(request)
        rewards = [
            self._reward(body, who, exchange.key, numbered(headers, number))
            for number, body in enumerate(rewards_in(riding))
        ]
        for reward in rewards:
            self.keyed.note(*reward.keyed)
        await asyncio.gather(*(self.publish(REWARDS, who.group_id, reward.event) for reward in rewards))

    def _reward(self, body: AssignReward, who: Identity, key: ApiKey | None, headers: ClientHeaders) -> "_Reward":
        place = ("rewards", who.group_id, who.trajectory_id)
        keyed = headers.idempotency_key, place, f"{body.model_dump_json()} {headers.key_name}"
        at_us = self.keyed.first_us(*keyed, now_us())
        event = reward_assigned(as_speaker(body, key, self._sources, at_us), who, headers, self.producer, at_us)
        return _Reward(event, (*keyed, at_us))

    async def submit_steps(
        self, request: Request, body: SubmitSteps, channel: Annotated[NameBody | None, Query()] = None
    ) -> JSONResponse:
        who = self._member(request)
        body = body.model_copy(update={"channel": body.channel or channel})
        events = step_events(body, who, _headers(request), self.producer)
        if events.rewards:
            self._sources.require(request.scope[KEY], AGENT)
        await asyncio.gather(*(self.publish(CALLS, who.group_id, event) for event in events.calls))
        self._metrics.captured.labels("named").inc(len(events.calls))
        await asyncio.gather(*(self.publish(REWARDS, who.group_id, event) for event in events.rewards))
        if events.completion is not None:
            await self.publish(CALLS, who.group_id, events.completion)
        return JSONResponse({"accepted": len(events.calls), "call_ids": [event.call_id for event in events.calls]})

    async def init_trajectory(self, request: Request, body: RegisterTrajectory | None = None) -> JSONResponse:
        body, headers, root = body or RegisterTrajectory(), _headers(request), self._public_url or _own_url(request)
        refuse_revision(request.scope[KEY], body.revision)
        name = headers.idempotency_key
        subject = (scope_of(request.scope[KEY], None), headers.run_id or "", name or "")
        fresh = [decision_id("init", kind, *subject) if name else new_id() for kind in ("group", "trajectory")]
        group_id, trajectory_id = [own_id(request.scope[KEY], each) for each in fresh]
        who = Identity(group_id, trajectory_id)
        self._crowds.require_room(who)
        event = trajectory_started(body, who, headers, self.producer)
        await self.publish(CALLS, who.group_id, event)
        base_url = "/".join((root, *(quote(each, safe="") for each in (who.trajectory_id, who.group_id))))
        return JSONResponse({"trajectory_id": who.trajectory_id, "group_id": who.group_id, "base_url": base_url})

    def _member(self, request: Request) -> Identity:
        """The trajectory of the path, which becomes a member of its group by this. Raises InvalidRequest."""
        who = _identity(request)
        self._crowds.require_room(who)
        return who

    def _claim(self, run_id: str | None, group_id: str, *, takes_room: bool) -> bool:
        """Claims the group for the run, and returns whether this request has to release it if it fails.

        Raises GroupOfOtherRun, NotAdmitted.
        """
        owner = self._admission.run_of(group_id)
        if owner not in (None, run_id):
            raise GroupOfOtherRun(
                f"group {group_id} was opened by run {owner}: give a group an id of its own, "
                f"or run_id {owner} to declare this one again",
                param="group_id" if run_id else "run_id",
            )
        if run_id is None:
            return False
        return self._admit(run_id, group_id) if takes_room else self._admission.note(run_id, group_id)

    def _admit(self, run_id: str, group_id: str) -> bool:
        """Reserves room, and returns whether this request did so. Raises NotAdmitted."""
        decision = self._admission.reserve(run_id, group_id)
        self._metrics.admission.labels(decision.reason if isinstance(decision, Wait) else "admitted").inc()
        if isinstance(decision, Wait):
            raise NotAdmitted(
                "the run has no room for another group yet", retry_after_s=self._retry_after_s, code=decision.reason
            )
        return decision.counted

    async def _accept(
        self, topic: Topic, who: Identity, event: TrajectoryStarted | TrajectoryCompleted | RewardAssigned
    ) -> JSONResponse:
        await self.publish(topic, who.group_id, event)
        return JSONResponse({"event_id": event.envelope.event_id})

    async def publish(self, topic: Topic, group_id: str, event: Event) -> None:
        """Returns once the event is acknowledged, or safe in the spool. Raises BodyTooLarge, NotCaptured."""
        try:
            await self._sink.publish(topic, group_key(group_id), event)
        except RecordTooLarge as error:
            raise BodyTooLarge("what this says is larger than a record of the log may be") from error
        except LogError as error:
            log.error("event_not_captured", kind=type(event).__name__, error=str(error))
            raise NotCaptured("the event could not be stored; send it again", retry_after_s=1.0) from error


class _Reward(NamedTuple):
    """A reward that may be stored, and what is then known under its idempotency key."""

    event: RewardAssigned
    keyed: tuple[str | None, tuple[str, ...], str, int]


class StrictRequest(Request):
    """A request whose body is read by `strict_json`."""

    async def json(self) -> Any:  # any JSON value
        try:
            return strict_json(await self.body())
        except InvalidRequest as broken:
            raise HTTPException(400, broken.message) from broken


class StrictRoute(APIRoute):
    """A route of FastAPI that reads its body as StrictRequest does."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def read_strictly(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return read_strictly


def control_app(
    control: Control, models: Models, counting: TokenCounting, health: Health, metrics: Metrics, lifespan: Lifespan
) -> FastAPI:
    """All control routes, with errors in OpenAI's shape."""
    app = FastAPI(
        title="Claw-R1 gateway",
        version=importlib.metadata.version("claw-r1"),
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.router.route_class = StrictRoute
    for path, handler in control.frequent().items():
        status, listed = 201 if handler == control.open_group else None, path != b"/v1/groups"
        app.add_api_route(path.decode(), handler, methods=["POST"], status_code=status, include_in_schema=listed)
    app.add_api_route("/init_trajectory", control.init_trajectory, methods=["POST"])
    app.add_api_route("/v1/init_trajectory", control.init_trajectory, methods=["POST"], include_in_schema=False)
    app.add_api_route("/v1/submit_steps", control.submit_steps, methods=["POST"])
    feedback = FeedbackRoutes(control.publish, control.producer, control.keyed)
    preferences = "/groups/{group_id:path}/preferences"
    app.add_api_route("/v1/feedback", feedback.give_feedback, methods=["POST"])
    app.add_api_route(preferences, feedback.give_preference, methods=["POST"])
    app.add_api_route(f"/v1{preferences}", feedback.give_preference, methods=["POST"], include_in_schema=False)
    app.add_api_route("/v1/models", models.list_models, methods=["GET"])
    app.add_api_route("/v1/models/{model_id:path}", models.retrieve_model, methods=["GET"])
    app.add_api_route("/v1/messages/count_tokens", counting.count_tokens, methods=["POST"])
    app.add_api_route("/v1/api/hello", health.live, methods=["GET"])
    app.add_api_route("/v1/api/hello", health.live, methods=["HEAD"], include_in_schema=False)
    app.add_api_route("/v1/calls", control.list_calls, methods=["GET"])
    app.add_api_route("/orders/{order:path}/returns", control.task_returns, methods=["GET"])
    app.add_api_route("/orders/{order:path}", control.next_ordinal, methods=["GET"])
    app.add_api_route("/livez", health.live, methods=["GET"])
    app.add_api_route("/readyz", health.ready, methods=["GET"])
    app.add_api_route("/version", health.version, methods=["GET"])

    def exposition() -> Response:
        # In a thread: it asks disks how full they are, and one that hangs must hold up nobody else.
        return Response(metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    app.add_api_route("/metrics", exposition, methods=["GET"])
    _handle_errors(app)
    return app


def _handle_errors(app: FastAPI) -> None:
    """Errors of FastAPI's own; ours go through to the door."""

    async def invalid(_: Request, error: Exception) -> Response:
        first = error.errors()[0] if isinstance(error, RequestValidationError) else {"msg": str(error), "loc": ()}
        raise not_valid(first, first["loc"][1:])

    async def http(request: Request, error: Exception) -> Response:
        status, text = (error.status_code, str(error.detail)) if isinstance(error, HTTPException) else (500, str(error))
        kinds: dict[int, type[GatewayError]] = {404: NotFound, 405: MethodNotAllowed}
        refusal = kinds.get(status, InvalidRequest)(f"no such route: {SERVED}" if status == 404 else text)
        headers = getattr(error, "headers", None) or {}  # the methods that are allowed
        body = error_body_for(request.scope["raw_path"], request.scope["headers"], refusal)
        return Response(body, refusal.status, headers, media_type="application/json")

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def _identity(request: Request) -> Identity:
    who = request.scope.get(IDENTITY)
    if not isinstance(who, Identity):
        raise NotFound("the path must name a trajectory")  # the door refuses such a path before, with more to say
    return who


def _own_url(request: Request) -> str:
    """By which the client reached us, as far as we can tell. Raises InvalidRequest."""
    host = next((value for name, value in request.scope["headers"] if name == b"host"), None)
    if host is None:
        raise InvalidRequest("base_url is made of the Host header, which is missing", param="host")
    return f"{request.scope['scheme']}://{host.decode('latin-1')}"


def _headers(request: Request) -> ClientHeaders:
    return client_headers(request.scope["headers"], request.scope[KEY])
