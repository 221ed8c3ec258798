"""The schema registry over HTTP: under the gateway's `/registry`, and alone (`claw registry`)."""

from hashlib import sha256

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from claw_r1.schemas.registry import CONTENT_TYPE, Registry

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE"]


def registry_app(registry: Registry) -> Starlette:
    """Makes the registry's app, whose replies have an ETag, of their bytes: a schema of an id never changes."""

    async def answer(request: Request) -> Response:
        path = request.path_params["path"]
        reply = registry.reply(request.method, path, request.query_params, await request.body())
        headers = {"content-type": CONTENT_TYPE}
        if reply.status == 200 and request.method in ("GET", "HEAD"):
            headers["etag"] = f'"{sha256(reply.body).hexdigest()[:16]}"'
            if headers["etag"] in request.headers.get("if-none-match", ""):
                return Response(status_code=304, headers=headers)
        return Response(reply.body, reply.status, headers)

    return Starlette(routes=[Route("/{path:path}", answer, methods=METHODS)])
