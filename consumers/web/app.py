"""The app factory of pages: what they all have, and what each adds."""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import HTMLResponse

from claw_r1.consumers.web.first_view import STYLE, document, style
from claw_r1.consumers.web.guard import PageGuard
from claw_r1.consumers.web.problems import PageProblem, SafeJson, answer_problems
from claw_r1.consumers.web.sessions import MAY_ON_PAGES, PageSession, PageSessions, cookie_name
from claw_r1.consumers.web.settings import PageSettings
from claw_r1.consumers.web.stream import LiveStream, stream_routes

STATIC = Path(__file__).parent / "static"
INLINE = re.compile(rb"<script type=\"importmap\">(.*?)</script>", re.DOTALL)
PageLifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class SignIn(BaseModel):
    """POST /api/v1/session"""

    model_config = ConfigDict(extra="forbid", frozen=True)

    who: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Without keys: the name to speak under."""
    key: Annotated[str, Field(max_length=512)] | None = None
    """With keys: a key of `claw keys`."""


class SignedIn(BaseModel):
    """The person who is signed in."""

    who: str
    role: str
    token: str
    keys: bool
    may_judge: bool
    live: str
    """The newest update: a page follows from there, since it reads only after this."""


def create_app(
    title: str,
    settings: PageSettings,
    sessions: PageSessions,
    routers: Sequence[APIRouter],
    stream: LiveStream,
    static: Path,
    *,
    views: Mapping[str, str],
    state: Mapping[str, object] | None = None,
    checked_name: Callable[[str], str] = str,
    lifespan: PageLifespan | None = None,
) -> PageGuard:
    """The page behind its guard. static: its folder, with `index.html`. state: what the routes work with, on `app.state`.

    views: paths under which the page itself finds its way, `/` among them -> address of the module of what is seen first there.
    checked_name: raises ValueError for a name of no person.
    """
    app = FastAPI(
        title=title, version="1", docs_url=None, redoc_url=None, openapi_url="/api/v1/openapi.json", lifespan=lifespan
    )
    app.state.sessions = sessions
    for name, value in (state or {}).items():
        setattr(app.state, name, value)
    answer_problems(app)
    for router in (_session_routes(sessions, stream, checked_name), stream_routes(stream), *routers):
        app.include_router(router)
    index = _add_documents(app, static, views)

    @app.get("/live", summary="Whether the process answers.")
    def live() -> dict[str, bool]:
        return {"live": True}

    app.mount("/web", StaticFiles(directory=STATIC))
    app.mount("/page", StaticFiles(directory=static))
    hashes = [f"sha256-{b64encode(sha256(each).digest()).decode()}" for each in INLINE.findall(index.encode())]
    return PageGuard(
        app,
        keys=settings.keys,
        script_hashes=hashes,
        body_bytes_max=settings.body_bytes_max,
        public_url=settings.public_url,
        documents=views.keys(),
    )


def _add_documents(app: FastAPI, static: Path, views: Mapping[str, str]) -> str:
    """Adds the routes of what a browser reads first; returns the document as it was written."""
    folders = {"/web/": STATIC, "/page/": static}
    index = (static / "index.html").read_text()
    sheet = style(index, folders)
    documents = {path: document(index, folders, view) for path, view in views.items()}

    async def page(request: Request) -> Response:
        return HTMLResponse(documents[request.url.path])

    async def one_sheet() -> Response:
        return Response(sheet, media_type="text/css")

    for path in views:
        app.add_api_route(path, page, include_in_schema=False)
    app.add_api_route(STYLE, one_sheet, include_in_schema=False)
    return index


def _session_routes(sessions: PageSessions, stream: LiveStream, checked_name: Callable[[str], str]) -> APIRouter:
    routes = APIRouter(prefix="/api/v1", tags=["session"])

    def described(session: PageSession) -> Response:
        person = SignedIn(
            who=session.who,
            role=session.role,
            token=session.token,
            keys=sessions.keys is not None,
            may_judge=session.role in MAY_ON_PAGES["judge"],
            live=stream.position,
        )
        return SafeJson(person.model_dump())

    def opened(request: Request, who: str | None, key: str | None) -> Response:
        cookie, session = sessions.open(who, key)
        response = described(session)
        secure = request.url.scheme == "https"
        response.set_cookie(cookie_name(request), cookie, httponly=True, samesite="strict", secure=secure, path="/")
        return response

    @routes.get("/session", response_model=SignedIn, summary="Who is signed in; without keys, whoever asks is.")
    async def session(request: Request) -> Response:
        current = sessions.of(request)
        if current is None and sessions.keys is None:
            return opened(request, None, None)
        return described(current or sessions.require(request, "look"))

    @routes.post("/session", response_model=SignedIn, summary="Sign in, or speak under another name.")
    async def sign_in(request: Request, body: SignIn) -> Response:
        if body.who is not None:
            try:
                checked_name(body.who)
            except ValueError as error:
                raise PageProblem(422, str(error)) from error
        answer = opened(request, body.who, body.key)
        sessions.close(request)
        return answer

    @routes.delete("/session", status_code=204, summary="Sign out.")
    async def sign_out(request: Request) -> None:
        sessions.close(request)

    return routes
