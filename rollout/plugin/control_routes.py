"""The requests of a person to one worker: POST /claw/drain, POST /claw/probe. Its supervisor takes them with GET
/claw/info."""

import ipaddress
from typing import TYPE_CHECKING

from claw_r1.schemas.api_keys import names_loopback
from claw_r1.weights.sources import SECRET_VARIABLE, authorization, is_authorized

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

KINDS = ("drain", "probe")


class ControlRequests:
    """Each kind at most once until it is taken."""

    def __init__(self) -> None:
        self._open: list[str] = []

    def add(self, kind: str) -> None:
        if kind not in self._open:
            self._open.append(kind)

    def take(self) -> list[str]:
        """In the order in which they came; nobody gets them a second time."""
        requests, self._open = self._open, []
        return requests

    def attach(self, app: "FastAPI") -> None:
        """Register the routes, open to who knows the secret; without one, to programs of this host."""
        from fastapi import Request
        from fastapi.responses import JSONResponse

        def route(kind: str) -> None:
            async def ask(request: Request) -> JSONResponse:
                if (reason := refusal(request)) is not None:
                    return JSONResponse({"error": reason}, status_code=401)
                self.add(kind)
                return JSONResponse({"accepted": True}, status_code=202)

            app.post(f"/claw/{kind}")(ask)

        for kind in KINDS:
            route(kind)


def refusal(request: "Request") -> str | None:
    """Returns why this client may ask for nothing; None where it may."""
    expected = authorization()
    if expected:
        header = request.headers.get("authorization", "")
        return None if is_authorized(header, expected) else f"needs the secret of {SECRET_VARIABLE}"
    host = request.client.host if request.client else ""
    if not host or not ipaddress.ip_address(host).is_loopback:
        return f"from another host it needs {SECRET_VARIABLE}"
    # Any page that a browser of this host has open reaches it, too: by its own name, or with its origin.
    if "origin" in request.headers or not names_loopback(request.headers.get("host", "")):
        return f"a web page, or another name than localhost, needs {SECRET_VARIABLE}"
    return None
