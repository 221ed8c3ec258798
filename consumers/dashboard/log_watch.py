"""Watches the log's health, so that pages with data from before an outage say so."""

import threading
from collections.abc import Callable

import structlog

from claw_r1.consumers.dashboard.page_log import PageLog
from claw_r1.eventlog.errors import LogError
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.topics import WORKERS

PROBE_S = 3.0
log = structlog.get_logger()


class LogWatch:
    """A thread that asks the log where one topic ends. `away_since_us` is null while it answers."""

    def __init__(self, log: PageLog, changed: Callable[[], object], probe_s: float = PROBE_S) -> None:
        """changed: called when the log went away or came back."""
        self.away_since_us: int | None = None
        self._log, self._changed, self._probe_s = log, changed, probe_s
        self._stopping = threading.Event()

    def start(self) -> None:
        """Begins to ask, in a thread that ends with the process or by `stop`."""
        threading.Thread(target=self._run, name="dashboard-log-watch", daemon=True).start()

    def stop(self) -> None:
        """Asks no more; a question that is under way is not waited for."""
        self._stopping.set()

    def probe(self) -> None:
        """Asks once. The log counts as away since its first unanswered request."""
        asked_us = now_us()
        try:
            self._log.end_offsets([WORKERS])
        except LogError as error:
            self._became(self.away_since_us or asked_us, str(error))
        else:
            self._became(None)

    def _became(self, away_since_us: int | None, why: str = "") -> None:
        if away_since_us == self.away_since_us:
            return
        self.away_since_us = away_since_us
        if away_since_us is None:
            log.info("dashboard_log_back")
        else:
            log.warning("dashboard_log_away", error=why)
        self._changed()

    def _run(self) -> None:
        while not self._stopping.wait(self._probe_s):
            self.probe()
