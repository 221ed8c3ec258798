"""The composition root: the page on the real log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import structlog
from fastapi import FastAPI

from claw_r1.consumers.feedback.routes import routes
from claw_r1.consumers.feedback.settings import FeedbackPageSettings
from claw_r1.consumers.feedback.view import FeedbackView, PageLog
from claw_r1.consumers.web.app import create_app
from claw_r1.consumers.web.guard import PageGuard
from claw_r1.consumers.web.known_people import keys_followed
from claw_r1.consumers.web.serve import bind_page, run_page, url_of
from claw_r1.consumers.web.sessions import PageSessions
from claw_r1.datapool.feedback import checked_name
from claw_r1.datapool.view.view import PoolView
from claw_r1.eventlog.kafka.admin import as_on_broker, check_broker, check_catalogue
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.known_keys import KnownKeys
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.logs import log_to_stderr
from claw_r1.schemas.topics import KEYS

STATIC = Path(__file__).parent / "static"
log = structlog.get_logger()


def feedback_app(settings: FeedbackPageSettings, page_log: PageLog, pool: PoolView) -> PageGuard:
    """The page; its lifespan opens and closes what reads and writes the log."""
    view = FeedbackView(page_log, pool)
    sessions = PageSessions(settings, KnownKeys() if settings.keys else None)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            view.start()
            with keys_followed(lambda: page_log.reader([KEYS]), sessions):
                yield
        finally:
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
    app = feedback_app(settings, KafkaLog(log_settings), PoolView(log_settings, listed=True))
    print(f"open {url_of(listener)}", flush=True)
    log.info("feedback_listening", url=url_of(listener), keys=settings.keys)
    run_page(app, listener)
