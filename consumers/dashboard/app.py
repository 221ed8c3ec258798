"""The composition root: the dashboard on the real log."""

import asyncio
import json
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import structlog
from fastapi import FastAPI

from claw_r1.consumers.dashboard.metrics import broken, not_ready, registry_of
from claw_r1.consumers.dashboard.overview.log_state import LogState
from claw_r1.consumers.dashboard.processes import ProcessWatch
from claw_r1.consumers.dashboard.rewards.trial import trial_slots
from claw_r1.consumers.dashboard.routes import (
    batch,
    curation,
    explorer,
    group,
    lab,
    operations,
    overview,
    rewards,
    runs,
    tokens,
    trajectory,
)
from claw_r1.consumers.dashboard.routes.parts import acts, lineage, lookup, record, state
from claw_r1.consumers.dashboard.settings import DashboardSettings
from claw_r1.consumers.dashboard.source import DashboardSource, pool_change
from claw_r1.consumers.dashboard.tokens.vocabularies import Vocabularies
from claw_r1.consumers.web.app import create_app
from claw_r1.consumers.web.guard import PageGuard
from claw_r1.consumers.web.known_people import keys_followed
from claw_r1.consumers.web.serve import bind_page, run_page, url_of
from claw_r1.consumers.web.sessions import PageSessions
from claw_r1.consumers.web.stream import LiveStream
from claw_r1.datapool.feedback import checked_name
from claw_r1.datapool.view.view import PoolView
from claw_r1.eventlog.kafka.admin import as_on_broker, check_broker, check_catalogue
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.known_keys import KnownKeys
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.logs import log_to_stderr
from claw_r1.runtime.monitoring.registry import watch_certificate
from claw_r1.runtime.monitoring.server import monitored
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.topics import KEYS

STATIC = Path(__file__).parent / "static"
ROUTES = (
    state.routes,
    lookup.routes,
    overview.routes,
    explorer.routes,
    group.routes,
    trajectory.routes,
    tokens.routes,
    record.routes,
    acts.routes,
    operations.routes,
    lab.routes,
    runs.routes,
    batch.routes,
    lineage.routes,
    rewards.routes,
    curation.routes,
)
"""One router per view, and per part of several views, in the order of the views."""
MODULES = {f"/{path.stem}": f"/page/views/{path.name}" for path in sorted((STATIC / "views").glob("*.js"))}
log = structlog.get_logger()


def sessions_of(settings: DashboardSettings) -> PageSessions:
    """Returns the sessions of one page, without anybody yet."""
    return PageSessions(settings, KnownKeys() if settings.keys else None)


def dashboard_app(settings: DashboardSettings, source: DashboardSource, sessions: PageSessions) -> PageGuard:
    """The page; its lifespan opens and closes what reads and writes the log."""
    processes = ProcessWatch(source.log, now_us)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        telling = asyncio.create_task(source.live.run())
        try:
            source.start()
            processes.start()
            with keys_followed(lambda: source.log.reader([KEYS]), sessions):
                yield
        finally:
            telling.cancel()
            processes.stop()
            source.stop()

    return create_app(
        "claw dashboard",
        settings,
        sessions,
        ROUTES,
        source.live,
        STATIC,
        views={"/": MODULES["/overview"], **MODULES},
        state={
            "dashboard": source,
            "log_state": LogState(source.log),
            "processes": processes,
            "orders": explorer.FrozenOrders(),
            "settings": settings,
            "vocabularies": Vocabularies(settings.tokenizer),
        },
        checked_name=partial(checked_name, "who"),
        lifespan=lifespan,
    )


def serve(settings: DashboardSettings, log_settings: LogSettings) -> None:
    """Serve until SIGTERM or SIGINT. Raises PortTaken, LogError, ConfigRefused."""
    log_to_stderr()
    trial_slots(settings.rewards)  # one that cannot be read is refused now
    listener = bind_page(settings)
    check_broker(log_settings, log_settings.connect_timeout_s)
    log_settings = as_on_broker(log_settings)
    check_catalogue(log_settings, "dashboard")
    live = LiveStream()
    pool = PoolView(log_settings, listed=True, on_row=pool_change(live))
    source = DashboardSource(KafkaLog(log_settings), pool, live)
    sessions = sessions_of(settings)
    app = dashboard_app(settings, source, sessions)
    url = f"{url_of(listener, settings.scheme)}/{settings.view}".removesuffix("/")
    print(
        json.dumps({"url": url, "state": "reading", "keys": settings.keys}) if settings.as_json else f"open {url}",
        flush=True,
    )
    log.info("dashboard_listening", url=url, keys=settings.keys)
    if settings.open:
        webbrowser.open(url)
    registry = registry_of(source)
    watch_certificate(registry, settings.tls_certificate_file)
    is_unready, is_broken = partial(not_ready, source), partial(broken, source, sessions)
    with monitored(registry, settings.metrics_host, settings.metrics_port, is_unready, broken=is_broken):
        run_page(app, listener, settings)
