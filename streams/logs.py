"""Logs to stderr: ours by structlog, those of Faust and aiokafka from warnings up."""

import logging
import sys

from schemas.runtime.logs import log_to_stderr


def configure_logs() -> None:
    """Call once, in the process's entry point."""
    log_to_stderr()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
