"""The composition of the gateway: collaborators in, what serves connections out.

Every request passes the door (`http/door.py`); behind it model calls go to `capture/calls.py`, groups, lifecycle and rewards to
their handlers (`control/direct_routes.py`), all others to FastAPI (`control/routes.py`).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fastapi import FastAPI
from starlette.types import ASGIApp

from claw_r1.gateway.adaptation import Adaptation
from claw_r1.gateway.capture.calls import ModelCalls
from claw_r1.gateway.capture.durable_log import EventSink
from claw_r1.gateway.capture.previous_responses import ReadCalls
from claw_r1.gateway.control.admission import AdmissionView
from claw_r1.gateway.control.count_tokens import TokenCounting
from claw_r1.gateway.control.crowding import Crowds
from claw_r1.gateway.control.direct_routes import DirectRoutes
from claw_r1.gateway.control.health import Health, watch_loop_lag
from claw_r1.gateway.control.models import Models
from claw_r1.gateway.control.registry import registry_app
from claw_r1.gateway.control.routes import Control, control_app
from claw_r1.gateway.http.asgi import AsgiHandler
from claw_r1.gateway.http.auth import KeyRing
from claw_r1.gateway.http.door import Door
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.paths import REGISTRY_PATH
from claw_r1.gateway.protocols import PROTOCOLS, Protocols
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.gateway.upstream.dispatch import Dispatcher
from claw_r1.gateway.upstream.engines import EngineTable
from claw_r1.gateway.upstream.http_upstream import HttpUpstream
from claw_r1.runtime.monitoring.server import NotReady
from claw_r1.schemas.registry import Registry
from claw_r1.schemas.topics import Catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDependencies:
    """The collaborators of the gateway. Tests give a log of their own and fill the tables by hand."""

    settings: GatewaySettings
    sink: EventSink
    engines: EngineTable
    admission: AdmissionView = field(default_factory=AdmissionView)
    metrics: Metrics = field(default_factory=Metrics)
    keys: KeyRing = field(default_factory=KeyRing)
    catalogue: Catalogue = field(default_factory=Catalogue)
    """The catalogue whose topics the registry serves."""
    not_ready: NotReady = lambda: None
    read_calls: ReadCalls = lambda _: iter(())
    """Calls that the log holds already."""
    protocols: Protocols = PROTOCOLS


@dataclass(frozen=True, slots=True)
class Gateway:
    """The parts of the gateway that a server needs."""

    app: ASGIApp
    """Its lifespan opens and closes the connections to engines. Requests reach it through the door only."""
    door: Door


def create_gateway(dependencies: GatewayDependencies) -> Gateway:
    """The gateway, composed."""
    settings, metrics, engines = dependencies.settings, dependencies.metrics, dependencies.engines
    upstream = HttpUpstream(settings.connect_timeout_s, settings.upstream_timeout_s, settings.reply_bytes_max)
    dispatcher = Dispatcher(settings, engines, upstream, metrics)
    crowds = Crowds(metrics)
    dependencies.admission.on_group = crowds.take
    adaptation = Adaptation(settings, engines)
    calls = ModelCalls(settings, dispatcher, dependencies.sink, metrics, crowds, adaptation, dependencies.read_calls)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        lag = asyncio.ensure_future(watch_loop_lag(metrics.loop_lag_seconds.set))
        async with upstream:
            yield
        lag.cancel()

    control = Control(
        settings, dependencies.sink, dependencies.admission, metrics, crowds, calls.recent_replies, dependencies.keys
    )
    health = Health(engines, dependencies.not_ready)
    counting = TokenCounting(dispatcher, adaptation, passes_authorization=settings.passes_authorization)
    models = Models(engines, upstream, adaptation, passes_authorization=settings.passes_authorization)
    app = control_app(control, models, counting, health, metrics, lifespan)
    app.mount(REGISTRY_PATH, registry_app(Registry(dependencies.catalogue)))
    answers = DirectRoutes(control.frequent(), AsgiHandler(app))
    door = Door(settings, dependencies.keys, metrics, calls, answers, control.take_rewards, dependencies.protocols)
    metrics.observe(lambda: calls.in_flight, lambda: len(engines.live()), lambda: door.held_bytes)
    metrics.observe_engines(lambda: engines.seconds)
    return Gateway(app, door)
