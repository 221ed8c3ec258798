"""The log of every process: one line per event on stderr, as JSON where no terminal reads it.

Results are on stdout, so that a pipe gets them alone. Configured by each room's `__main__`, never at import.
Invariants: a traceback shows no local variables (structlog's default does, with rich installed): they hold prompts. A
line never blocks and never raises, whoever reads it or does not: what does not fit is dropped and counted, and the next
line that fits says how many. That holds for all that Python writes to `sys.stderr`, print and other loggers included.
"""

import atexit
import io
import logging
import os
import select
import stat
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import structlog
from structlog.typing import Processor

WAITING_BYTES_MAX = 1 << 20
"""The most bytes of lines that their reader has no room for yet."""
PIECE_BYTES = select.PIPE_BUF
"""The size of a piece that fits whatever has room at all."""
DRAIN_TIMEOUT_S = 1.0
NOTICE_EVENT = b'"event": "log_lines_dropped"'
NOTICE = b'{"dropped": %d, "level": "warning", ' + NOTICE_EVENT + b"}\n"
"""`dropped`: of this process so far."""


def log_to_stderr(level: str = "info") -> None:
    """From `level` (or `$CLAW_LOG_LEVEL`) upward; an unknown level counts as the default."""
    names = logging.getLevelNamesMapping()
    threshold = names.get(os.environ.get("CLAW_LOG_LEVEL", level).upper(), names[level.upper()])
    _unblock_stderr()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(_for_people() if sys.stderr.isatty() else _for_programs()),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )


def dropped_lines() -> int:
    """Lines of this process that nobody will read."""
    return _lines.dropped if _lines is not None else 0


def drain_logs(timeout_s: float = DRAIN_TIMEOUT_S) -> None:
    """Wait for what is still to be written, before leaving in a way that waits for nothing (`os._exit`)."""
    if _lines is not None:
        _lines.drain(timeout_s)


class _Lines(io.RawIOBase):
    """A file that takes whatever is written to it. What its descriptor has no room for waits,
    in bounds, for a thread."""

    def __init__(self, descriptor: int) -> None:
        self.dropped = self._said = 0
        self._descriptor = descriptor
        self._own = _own_handle(descriptor)
        self._poll = _poll_of(self._own)
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # what waits is the parent's to write
        atexit.register(self.drain, DRAIN_TIMEOUT_S)

    def _begin(self) -> None:
        self._lock = threading.RLock()  # a signal handler may log in the middle of a line
        self._waiting = bytearray()
        self._putting = False
        self._drainer: threading.Thread | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:  # any buffer
        """All of it, as far as the caller can tell."""
        line = bytes(data)
        with self._lock:
            if len(self._waiting) + len(line) > WAITING_BYTES_MAX:
                self._drop(line)
                return len(line)
            if self._said != self.dropped:
                self._said = self.dropped
                self._waiting += NOTICE % self.dropped
            self._waiting += line
            if self._drainer is None:
                self._put()
        return len(line)

    def drain(self, timeout_s: float) -> None:
        """Returns when all is written or dropped, or after the timeout."""
        deadline_s = time.monotonic() + timeout_s
        while self._waiting and time.monotonic() < deadline_s:
            with self._lock:  # an interpreter that ends may have started no thread
                self._put()
            if self._waiting:
                time.sleep(0.005)

    def _put(self) -> None:
        """Writes as much as there is room for now; a thread looks after the rest."""
        if self._putting:  # a finalizer or a signal handler in the middle of it: what they say comes next
            return
        self._putting = True
        try:
            while self._waiting and self._poll.poll(0):
                del self._waiting[: os.write(self._own, self._piece())]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads any more, or the disk is full
            self._drop(self._waiting)
            self._waiting.clear()
        finally:
            self._putting = False
        if self._waiting and self._drainer is None:
            drainer = threading.Thread(target=self._put_later, name="claw-logs", daemon=True)
            with suppress(RuntimeError):  # a process that ends starts no thread
                drainer.start()
                self._drainer = drainer

    def _piece(self) -> bytearray:
        """Whole lines, where they fit: other processes may write to the same pipe in between."""
        return self._waiting[: self._waiting.rfind(b"\n", 0, PIECE_BYTES) + 1 or PIECE_BYTES]

    def _put_later(self) -> None:
        poll = _poll_of(self._own)
        while True:
            poll.poll()
            with self._lock:
                self._put()
                if not self._waiting:
                    self._drainer = None
                    return

    def _drop(self, lines: bytes | bytearray) -> None:
        self.dropped += max(1, lines.count(b"\n") - lines.count(NOTICE_EVENT))


_lines: _Lines | None = None


def _unblock_stderr() -> None:
    """`sys.stderr` from now on; what is no file of the system (a test's) stays as it is."""
    global _lines  # there is one stderr
    if _lines is not None and getattr(sys.stderr, "buffer", None) is _lines:
        return
    try:
        # None: it was closed before we began.
        descriptor = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else sys.stderr.fileno()
    except OSError:
        return
    _lines = _Lines(descriptor)
    sys.stderr = io.TextIOWrapper(_lines, "utf-8", errors="backslashreplace", line_buffering=True)


def _own_handle(descriptor: int) -> int:
    """Returns a handle that never waits, where possible: whether a file waits is a matter of all who share it."""
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor):
        with suppress(OSError):
            return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return descriptor


def _poll_of(descriptor: int) -> "select.poll":
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return poll


def _for_people() -> list[Processor]:
    return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]


def _for_programs() -> list[Processor]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
