"""Reads raters' values for the page.

Input: claw.rewards and claw.rewards.verdicts, both from their beginning, from the first
request on: a dashboard without requests about rewards keeps none of it. Safe from any thread.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

from claw_r1.consumers.dashboard.page_log import PageLog
from claw_r1.consumers.rewards.measures.figures import RewardState
from claw_r1.eventlog.errors import NotCaughtUp
from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.records import Record
from claw_r1.schemas.topics import REWARDS, VERDICTS

T = TypeVar("T")
FIRST_LOOK_S = 2.0
"""A question waits this long for the log's present content."""


class RewardBoard:
    """Begins to read at the first request."""

    def __init__(self, log: PageLog) -> None:
        self._log, self._state = log, RewardState()
        self._lock, self._starting = threading.Lock(), threading.Lock()
        self._follower: Follower | None = None

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the reading, if one did."""
        return None if self._follower is None else self._follower.error

    def ask(self, question: Callable[[RewardState], T]) -> tuple[T, bool]:
        """The answer at one moment, and whether all was read by then. Raises LogError where reading ended."""
        follower = self._started_follower()
        try:
            follower.wait_caught_up(FIRST_LOOK_S)
            caught_up = True
        except NotCaughtUp:
            caught_up = False
        with self._lock:
            return question(self._state), caught_up

    def stop(self) -> None:
        """Ends the thread, if it ever began."""
        if self._follower is not None:
            self._follower.stop()

    def _started_follower(self) -> Follower:
        with self._starting:
            if self._follower is None:
                self._follower = Follower(self._log.reader([REWARDS, VERDICTS]), self._apply)
                self._follower.start()
            return self._follower

    def _apply(self, record: Record) -> None:
        with self._lock:
            self._state.add(record)
