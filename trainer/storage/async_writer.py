"""Writing to disk while the next batch trains: one thread, one piece of work after the other.

Invariant: a disk that is full or gone costs a checkpoint or an export, said in one line, and never the run.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import structlog

log = structlog.get_logger()

LOGGED_WAIT_S = 1.0


class BackgroundWriter:
    """Takes work from one thread. The work must not read anything that training changes."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._pending: list[Future[None]] = []

    def submit(self, name: str, write: Callable[[], object]) -> None:
        """Write soon. An OSError is logged under the name; anything else is a bug, which `wait` raises."""
        self._pending.append(self._executor.submit(_attempt, name, write))

    def wait(self) -> None:
        """Until all is written, or was given up."""
        began = time.monotonic()
        pending, self._pending = self._pending, []
        for future in pending:
            future.result()
        waited_s = time.monotonic() - began
        if waited_s > LOGGED_WAIT_S:
            log.info("waited_for_disk", seconds=round(waited_s, 1))

    def close(self) -> None:
        """Waits until all that was begun is written. Idempotent."""
        self._executor.shutdown()


def log_not_written(name: str, error: OSError) -> None:
    """The run continues: earlier writes are still there."""
    log.error("not_written", name=name, error=" ".join(str(error).split()))


@contextmanager
def attempt(name: str) -> Iterator[None]:
    """Writes what a full disk may refuse: an OSError is logged under the name, and no more comes of it."""
    try:
        yield
    except OSError as error:
        log_not_written(name, error)


def _attempt(name: str, write: Callable[[], object]) -> None:
    with attempt(name):
        write()
