"""A page on a socket, until SIGTERM or SIGINT."""

import socket
from types import FrameType

import structlog
import uvicorn
from starlette.types import ASGIApp

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.web.settings import PageSettings
from claw_r1.schemas.api_keys import is_loopback
from claw_r1.schemas.http import family_of, url_host

log = structlog.get_logger()

BACKLOG = 128
GRACE_S = 2


class PortTaken(ConsumerError):
    """Something else listens there."""


class PageServer(uvicorn.Server):
    """uvicorn's, after whose stop the process can exit 0."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn gives both
        """First signal: answer what is under way. Second: leave at once."""
        self.force_exit = self.should_exit
        self.should_exit = True


def bind_page(settings: PageSettings) -> socket.socket:
    """A listening socket. Raises PortTaken."""
    try:
        return socket.create_server((settings.host, settings.port), backlog=BACKLOG, family=family_of(settings.host))
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise PortTaken(f"cannot listen on {where}: {error.strerror}; choose another --port") from error


def url_of(listener: socket.socket, scheme: str) -> str:
    """Returns the address that a person opens. scheme: http or https."""
    host, port = listener.getsockname()[:2]
    host = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104  # compared, not bound
    return f"{scheme}://{url_host(host)}:{port}"


def run_page(app: ASGIApp, listener: socket.socket, settings: PageSettings) -> None:
    """Serve until a signal comes."""
    if not (settings.tls_certificate_file or settings.public_url or is_loopback(settings.host)):
        log.warning(
            "page_in_clear",
            what="keys, cookies and pages go over the network readable, and browsers copy nothing from it",
        )
    config = uvicorn.Config(
        app,
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
        ssl_context_factory=settings.context_factory,
    )
    PageServer(config).run(sockets=[listener])
