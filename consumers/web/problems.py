"""The error replies of a page: problem details (RFC 9457), a sentence that says what to do."""

import json
import math
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from claw_r1.consumers.errors import ConsumerError
from claw_r1.datapool.errors import PoolError
from claw_r1.eventlog.errors import AccessRefused, LogError

PROBLEM = "application/problem+json"


class PageProblem(Exception):
    """A request cannot be served, for a reason that a person can mend."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class SafeJson(Response):
    """JSON in ASCII: ids and texts of agents may hold what UTF-8 cannot carry. A loss or a return may be no
    number: it is null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:  # any JSON value, and numbers that JSON cannot hold
        try:
            text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        except ValueError:  # rare, so that the usual answer is not looked through
            text = json.dumps(_finite(content), separators=(",", ":"), allow_nan=False)
        return text.encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def problem(status: int, detail: str) -> Response:
    """The answer itself."""
    title = HTTPStatus(status).phrase
    return SafeJson({"title": title, "status": status, "detail": detail}, status, media_type=PROBLEM)


def answer_problems(app: FastAPI) -> None:
    """Every error of a route becomes problem details; a bug says so and is logged with its traceback by the server."""

    @app.exception_handler(PageProblem)
    async def of_page(_: Request, error: PageProblem) -> Response:
        return problem(error.status, error.detail)

    @app.exception_handler(HTTPException)
    async def of_http(_: Request, error: HTTPException) -> Response:
        return problem(error.status_code, str(error.detail))

    @app.exception_handler(RequestValidationError)
    async def of_input(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return problem(422, f"{'.'.join(map(str, first['loc'][1:])) or 'body'}: {first['msg']}")

    @app.exception_handler(LogError)
    async def of_log(request: Request, error: LogError) -> Response:
        says = "the log refuses this page" if isinstance(error, AccessRefused) else "the log does not answer"
        if request.method in ("GET", "HEAD"):
            return problem(503, f"{says}: {error}")
        unknown = "it is not known whether it was written: look, then say it again"
        return problem(503, f"{says}, and {unknown} ({error})")

    @app.exception_handler(PoolError)
    async def of_pool(_: Request, error: PoolError) -> Response:
        return problem(422 if isinstance(error, ValueError) else 503, str(error))

    @app.exception_handler(ConsumerError)
    async def of_consumer(_: Request, error: ConsumerError) -> Response:
        return problem(422, str(error))

    @app.exception_handler(Exception)
    async def of_bug(_: Request, error: Exception) -> Response:
        return problem(500, f"a fault of this program ({type(error).__name__}): its log has the details")
