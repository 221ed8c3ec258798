"""How every process writes its log: one line per event on stderr, as JSON where no terminal reads it.

Results are on stdout, so that a pipe gets them alone. Configured by each room's `__main__`, never at import.
Invariant: a traceback shows no local variables (structlog's default does, with rich installed): they hold prompts.
"""

import logging
import os
import sys

import structlog
from structlog.typing import Processor


def log_to_stderr(level: str = "info") -> None:
    """From `level` (or `$CLAW_LOG_LEVEL`) upward; an unknown level counts as the default."""
    names = logging.getLevelNamesMapping()
    threshold = names.get(os.environ.get("CLAW_LOG_LEVEL", level).upper(), names[level.upper()])
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(_for_people() if sys.stderr.isatty() else _for_programs()),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _for_people() -> list[Processor]:
    return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]


def _for_programs() -> list[Processor]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
