"""Logs to stderr: ours by structlog, those of Faust and aiokafka from warnings up.

Invariant: a traceback shows no local variables (structlog's default does, with rich installed): they hold prompts.
"""

import logging
import sys

import structlog


def configure_logs() -> None:
    """Call once, in the process's entry point."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
