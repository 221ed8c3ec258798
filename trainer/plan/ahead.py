"""Facts of the next batch, read while the one before it trains.

Invariant: only when facts are read changes, never which: a plan is put together and committed from what `get` answers, and
what could not be read ahead is read then, or fails then. One thread reads, because a look-up belongs to one.
"""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from eventlog.errors import LogError
from eventlog.records import Position, Record
from trainer.plan.facts import FactSource

Records = dict[Position, Record]


class FactsAhead:
    """A `FactSource` around another one. Holds the facts of one batch at most."""

    def __init__(self, facts: FactSource) -> None:
        self._facts = facts
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="facts-ahead")
        self._ahead: Future[Records] | None = None

    def read(self, positions: Iterable[Position]) -> None:
        """Begin to read these, and forget what was read ahead before."""
        chosen = set(positions)
        self._ahead = self._thread.submit(self._try, chosen) if chosen else None

    def get(self, positions: Iterable[Position]) -> Records:
        """Every record asked for, from memory where it was read ahead. Raises HistoryCut, LogError."""
        needed = set(positions)
        at_hand = self._ahead.result() if self._ahead is not None else {}
        missing = needed - at_hand.keys()
        read_now = self._thread.submit(self._facts.get, missing).result() if missing else {}
        return {position: at_hand[position] for position in needed - missing} | read_now

    def close(self) -> None:
        """Wait for what is being read."""
        self._thread.shutdown(cancel_futures=True)

    def _try(self, positions: set[Position]) -> Records:
        """What cannot be read is asked for again by `get`, which tells why."""
        try:
            return self._facts.get(positions)
        except LogError:
            return {}
