"""Facts of the next batch, read while the one before it trains.

Invariant: only the time of reading changes, never the facts: a plan is built and committed from the result of `get`;
facts that could not be read ahead are read then, or fail. One thread reads, because a look-up belongs to one.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from claw_r1.datapool.view.planned_rows import FactSource
from claw_r1.eventlog.errors import LogError, Retryable
from claw_r1.eventlog.records import Position, Record

log = structlog.get_logger()

Records = dict[Position, Record]
PATIENCE_S = 120.0
"""How long a broker may be away while facts are needed: as long as a transaction waits for it."""


class FactsAhead:
    """A `FactSource` around another one. Holds the facts of one batch at most."""

    def __init__(self, facts: FactSource, pause: Callable[[], None]) -> None:
        """pause: called between two attempts to reach a broker that is away; what it raises ends them."""
        self._facts = facts
        self._pause = pause
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="facts-ahead")
        self._ahead: Future[Records] | None = None

    def read(self, positions: Iterable[Position]) -> None:
        """Begin to read these, and forget what was read ahead before."""
        chosen = set(positions)
        self._ahead = self._thread.submit(self._try, chosen) if chosen else None

    def get(self, positions: Iterable[Position]) -> Records:
        """Every record asked for, from memory where it was read ahead.

        Raises HistoryCut, and BrokerUnreachable after PATIENCE_S.
        """
        needed = set(positions)
        at_hand = self._ahead.result() if self._ahead is not None else {}
        missing = needed - at_hand.keys()
        read_now = self._patiently(missing) if missing else {}
        return {position: at_hand[position] for position in needed - missing} | read_now

    def _patiently(self, positions: set[Position]) -> Records:
        began = time.monotonic()
        while True:
            try:
                return self._thread.submit(self._facts.get, positions).result()
            except Retryable as away:
                waited_s = time.monotonic() - began
                if waited_s > PATIENCE_S:
                    raise
                log.warning("facts_unreachable", waited_s=round(waited_s, 1), error=str(away))
                self._pause()

    def close(self) -> None:
        """Wait for what is being read."""
        self._thread.shutdown(cancel_futures=True)

    def _try(self, positions: set[Position]) -> Records:
        """Returns the records, or none if they cannot be read: `get` reads them again, with the reason."""
        try:
            return self._facts.get(positions)
        except LogError:
            return {}
