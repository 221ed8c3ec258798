"""One line per request: method, path, status, time and size. It holds no body, query or header of the client."""

import time

import structlog

from gateway.http.exchange import Exchange

PATH_CHARACTERS_MAX = 256
log = structlog.get_logger()


def log_request(exchange: Exchange) -> None:
    """The line of a request that is over."""
    log.info(
        "request",
        method=exchange.head.method.decode("ascii") or None,
        path=exchange.path[:PATH_CHARACTERS_MAX],
        status=exchange.status or None,
        ms=round(1000 * (time.perf_counter() - exchange.started_s), 2),
        reply_bytes=exchange.sent_bytes,
        call_id=exchange.call_id,
    )
