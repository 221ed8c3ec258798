"""The sessions of the people who are signed in to a page.

Invariant: a session lives in the memory of one process, and its cookie opens nothing that its key does not open now: a key
that is revoked or has expired ends it at the next request. Whoever has no session gets one without a word where no keys are
asked for.
"""

import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Request

from claw_r1.consumers.web.problems import PageProblem
from claw_r1.consumers.web.settings import PageSettings
from claw_r1.eventlog.known_keys import KnownKeys
from claw_r1.schemas.api_keys import Role
from claw_r1.schemas.envelopes import now_us

SESSIONS_MAX = 1000
TOKEN_HEADER = "x-page-token"  # noqa: S105  # the name of a header
NO_WORD = re.compile(r"[^A-Za-z0-9]")
PageAct = Literal["look", "judge", "watch", "operate"]
MAY_ON_PAGES: Mapping[PageAct, tuple[Role, ...]] = {
    "look": ("annotator", "reader", "operator"),
    "judge": ("annotator", "operator"),
    "watch": ("reader", "operator"),
    "operate": ("operator",),
}
"""Act -> the roles that may do it on a page."""
WRITES = ("judge", "operate")
SIGN_IN = "sign in: POST /api/v1/session with a key of `claw keys create NAME --role annotator`"

NARROW = "this key reaches what begins with its scope, and a page shows all of the pool: take one without --scope and --idle-s"


@dataclass(slots=True, kw_only=True)
class PageSession:
    """One sign-in."""

    who: str
    role: Role
    token: str
    """Writes carry it: a form of another site cannot know it."""
    digest: bytes | None = None
    """The digest of the key; None without keys."""
    ends_s: float = 0.0


class PageSessions:
    """The sessions of one page. Belongs to the event loop."""

    def __init__(
        self, settings: PageSettings, keys: KnownKeys | None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """keys: None where everybody at this machine is let in."""
        self.keys = keys
        self._settings = settings
        self._clock_s = clock_s
        self._sessions: OrderedDict[str, PageSession] = OrderedDict()
        self.failure: BaseException | None = None
        """The error that ended the reader of keys, if one did."""

    def fail(self, failure: BaseException) -> None:
        """Notes that the reader of keys ended: a revocation would not be heard of, so from now on nobody is let in."""
        self.failure = failure

    def open(self, who: str | None, secret: str | None) -> tuple[str, PageSession]:
        """A new session and its cookie. Raises PageProblem where keys are asked for and this is none."""
        self._check()
        role: Role = "operator"
        digest = None
        name = who or self._settings.who
        if self.keys is not None:
            key = self.keys.key((secret or "").encode())
            reason = key.why_invalid(now_us()) if key is not None else "this key is not known here"
            if key is None or reason is not None:
                raise PageProblem(401, f"{reason}; {SIGN_IN}")
            if key.role not in MAY_ON_PAGES["look"]:
                raise PageProblem(
                    403, f"a key of role {key.role} opens no page: it takes annotator, reader or operator"
                )
            if key.is_narrow:
                raise PageProblem(403, NARROW)
            role, digest, name = key.role, key.digest, key.name or key.digest.hex()[:12]
        session = PageSession(who=name, role=role, token=secrets.token_urlsafe(24), digest=digest)
        cookie = secrets.token_urlsafe(32)
        self._sessions[cookie] = session
        self._touch(cookie, session)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return cookie, session

    def of(self, request: Request) -> PageSession | None:
        """The session of a request, if it has one that is still good. Raises PageProblem where that cannot be known."""
        self._check()
        cookie = request.cookies.get(cookie_name(request), "")
        session = self._sessions.get(cookie)
        if session is None:
            return None
        if session.ends_s < self._clock_s() or not self._key_is_good(session):
            del self._sessions[cookie]
            return None
        self._touch(cookie, session)
        return session

    def close(self, request: Request) -> None:
        """Sign out."""
        self._sessions.pop(request.cookies.get(cookie_name(request), ""), None)

    def require(self, request: Request, act: PageAct) -> PageSession:
        """The session that may do it. Raises PageProblem."""
        session = self.of(request)
        if session is None:
            raise PageProblem(401, SIGN_IN if self.keys is not None else "no session yet: GET /api/v1/session first")
        if session.role not in MAY_ON_PAGES[act]:
            raise PageProblem(403, f"this needs the role {' or '.join(MAY_ON_PAGES[act])}; yours is {session.role}")
        token = request.headers.get(TOKEN_HEADER, "")
        if act in WRITES and not hmac.compare_digest(token.encode(), session.token.encode()):
            raise PageProblem(401, f"a write carries the session's token in {TOKEN_HEADER}: GET /api/v1/session")
        return session

    def _check(self) -> None:
        if self.failure is not None:
            raise PageProblem(503, f"reading claw.keys ended ({self.failure}): start this page again")

    def _touch(self, cookie: str, session: PageSession) -> None:
        session.ends_s = self._clock_s() + self._settings.session_hours * 3600
        self._sessions.move_to_end(cookie)

    def _key_is_good(self, session: PageSession) -> bool:
        if self.keys is None or session.digest is None:
            return self.keys is None
        key = self.keys.by_digest(session.digest)
        if key is None or key.why_invalid(now_us()) is not None or key.is_narrow:
            return False
        session.role = key.role
        return True


def cookie_name(request: Request) -> str:
    """Browsers share cookies among the ports of a host, so each has a name of its own."""
    return "claw_" + NO_WORD.sub("_", request.headers.get("host", ""))


async def _looking(request: Request) -> PageSession:
    return _sessions(request).require(request, "look")


async def _judging(request: Request) -> PageSession:
    return _sessions(request).require(request, "judge")


async def _watching(request: Request) -> PageSession:
    return _sessions(request).require(request, "watch")


async def _operating(request: Request) -> PageSession:
    return _sessions(request).require(request, "operate")


def _sessions(request: Request) -> PageSessions:
    sessions: PageSessions = request.app.state.sessions
    return sessions


Looking = Annotated[PageSession, Depends(_looking)]
"""Parameter of a route for whoever may look."""
Judging = Annotated[PageSession, Depends(_judging)]
"""Parameter of a route for whoever may judge."""
Watching = Annotated[PageSession, Depends(_watching)]
"""Parameter of a route for whoever may see how the system is run."""
Operating = Annotated[PageSession, Depends(_operating)]
"""Parameter of a route for operators."""
