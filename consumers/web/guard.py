"""The guard before every route of a page: whose request it is, and what a browser may do with the answer."""

from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from claw_r1.consumers.web.problems import problem
from claw_r1.schemas.api_keys import names_loopback

POLICY = (
    "default-src 'none'; script-src 'self'{hashes}; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
SAFE = ("GET", "HEAD")
FOREIGN = "this request comes from another site"


class PageGuard:
    """Wraps a page: requests of other sites are refused, answers carry the headers.

    Without keys, Host and Origin must name this machine, as at the gateway: a page from elsewhere that a browser here has
    open sends its own. With keys, the origin of a request must be the address that it was sent to. Another site may open a
    document by a link, and nothing else.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: bool,
        script_hashes: Iterable[str],
        body_bytes_max: int,
        public_url: str = "",
        documents: Collection[str] = (),
    ) -> None:
        """script_hashes: of the inline import map, `sha256-…`. public_url: of the proxy before the page, or empty. documents: the
        paths to which a link may lead."""
        self.app = app
        self._public = urlsplit(public_url)
        self._keys = keys
        self._documents = documents
        self._body_bytes_max = body_bytes_max
        hashes = "".join(f" '{each}'" for each in script_hashes)
        self._headers = {
            "content-security-policy": POLICY.format(hashes=hashes),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-store",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves an ASGI request."""
        if scope["type"] != "http":  # the lifespan; there are no websockets
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        if self._public.scheme:
            scope["scheme"] = self._public.scheme
        refusal = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        await (refusal or self.app)(scope, receive, with_headers)

    def _refusal(self, method: str, path: str, headers: Headers) -> Response | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if len(headers.getlist("host")) > 1:
            return problem(400, "a request has one Host header")
        if not self._keys and not (names_loopback(host) and (origin is None or names_loopback(origin))):
            return problem(403, "without --keys this page is for this machine alone: open it by 127.0.0.1 or localhost")
        if origin is not None and _authority(origin) not in (host.lower(), self._public.netloc.lower() or host.lower()):
            return problem(403, FOREIGN)
        site = headers.get("sec-fetch-site", "same-origin")  # who has no browser sends none
        if method in SAFE:
            follows_link = (path.rstrip("/") or "/") in self._documents and headers.get("sec-fetch-mode") == "navigate"
            return None if follows_link or site in ("same-origin", "none") else problem(403, FOREIGN)
        if site != "same-origin":
            return problem(403, FOREIGN)
        bodiless = method == "DELETE" and "transfer-encoding" not in headers
        length = headers.get("content-length", "0" if bodiless else None)
        if length is None or not length.isdecimal():
            return problem(411, "a body needs its Content-Length")
        if int(length) > self._body_bytes_max:
            return problem(413, f"a body has at most {self._body_bytes_max} bytes")
        return None


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
