"""The composition root: the page on the real log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import structlog
from fastapi import FastAPI

from consumers.feedback.routes import routes
from consumers.feedback.settings import FeedbackPageSettings
from consumers.feedback.view import FeedbackView, PageLog
from consumers.web.app import create_app
from consumers.web.guard import PageGuard
from consumers.web.serve import bind_page, run_page, url_of
from consumers.web.sessions import PageSessions
from datapool.feedback import checked_name
from datapool.view.view import PoolView
from eventlog.follower import Follower
from eventlog.kafka.admin import as_on_broker, check_broker, check_catalogue
from eventlog.kafka.log import KafkaLog
from eventlog.known_keys import KnownKeys
from eventlog.settings import LogSettings
from schemas.runtime.logs import log_to_stderr
from schemas.topics import KEYS

STATIC = Path(__file__).parent / "static"
KEYS_TIMEOUT_S = 30.0
log = structlog.get_logger()


def feedback_app(settings: FeedbackPageSettings, page_log: PageLog, pool: PoolView) -> PageGuard:
    """The page; its lifespan opens and closes what reads and writes the log."""
    view = FeedbackView(page_log, pool)
    keys = KnownKeys() if settings.keys else None
    sessions = PageSessions(settings, keys)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        follower = Follower(page_log.reader([KEYS]), keys.apply, sessions.fail) if keys is not None else None
        try:
            view.start()
            if follower is not None:
                follower.start()
                follower.wait_caught_up(KEYS_TIMEOUT_S)
            yield
        finally:
            if follower is not None:
                follower.stop()
            view.stop()

    return create_app(
        "claw feedback",
        settings,
        sessions,
        [routes],
        STATIC,
        state={"feedback": view},
        checked_name=partial(checked_name, "who"),
        lifespan=lifespan,
    )


def serve(settings: FeedbackPageSettings, log_settings: LogSettings) -> None:
    """Serve until SIGTERM or SIGINT. Raises PortTaken, LogError."""
    log_to_stderr()
    listener = bind_page(settings)
    check_broker(log_settings, log_settings.connect_timeout_s)
    log_settings = as_on_broker(log_settings)
    check_catalogue(log_settings)
    app = feedback_app(settings, KafkaLog(log_settings), PoolView(log_settings, tokens=False))
    print(f"open {url_of(listener)}", flush=True)
    log.info("feedback_listening", url=url_of(listener), keys=settings.keys)
    run_page(app, listener)
