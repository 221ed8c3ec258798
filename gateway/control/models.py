"""GET …/v1/models[/{id}]: what can be called here, as OpenAI's clients read it, or Anthropic's."""

from datetime import UTC, datetime

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from claw_r1.gateway.adaptation import SIDE, Adaptation
from claw_r1.gateway.anthropic.errors import reads_anthropic
from claw_r1.gateway.errors import NotFound, NoWorker, UpstreamBroken, UpstreamRefused
from claw_r1.gateway.foreign_json import count, loads
from claw_r1.gateway.headers import passed_on
from claw_r1.gateway.http.asgi import KEY
from claw_r1.gateway.upstream.engines import Engine, EngineTable
from claw_r1.gateway.upstream.http_upstream import HttpUpstream
from claw_r1.schemas.json_values import Json

Model = dict[str, Json]


class Models:
    """Lists the models of live workers, or what the first fixed upstream lists, and the names
    that are aliases of them."""

    def __init__(
        self, engines: EngineTable, upstream: HttpUpstream, adaptation: Adaptation, *, passes_authorization: bool
    ) -> None:
        self._engines, self._upstream, self._adaptation = engines, upstream, adaptation
        self._passes_authorization = passes_authorization

    async def list_models(self, request: Request) -> Response:
        """All of them, on one page. Raises NoWorker when nothing serves anything."""
        models = await self._models(request)
        if not reads_anthropic(b"", request.scope["headers"]):
            return JSONResponse({"object": "list", "data": models})
        data = [_anthropic(model) for model in models]
        ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
        return JSONResponse({"data": data, "has_more": False, **ends})

    async def retrieve_model(self, request: Request, model_id: str) -> Response:
        """The model of a name that a call would be served under. Raises NotFound, NoWorker."""
        models = {model["id"]: model for model in await self._models(request)}
        served = self._adaptation.served(model_id, self._adaptation.rules(request.scope[KEY])).name
        model = models.get(model_id) or models.get(served)
        if model is None:
            raise NotFound(f"the model {model_id!r} does not exist", param="model", code="model_not_found")
        model = {**model, "id": model_id}
        return JSONResponse(_anthropic(model) if reads_anthropic(b"", request.scope["headers"]) else model)

    async def _models(self, request: Request) -> list[Model]:
        """In OpenAI's shape."""
        live = self._engines.live()
        fixed = [engine for engine in live if engine.fixed]
        if fixed:
            served = {model["id"]: model for model in await self._listed_by(fixed[0], request)}
        elif live:
            names = sorted({engine.model for engine in live if engine.model})
            served = {name: {"id": name, "object": "model", "created": 0, "owned_by": "claw"} for name in names}
        else:
            raise NoWorker("no rollout worker is ready", retry_after_s=1.0)
        aliases = {
            name: target.removesuffix(SIDE)
            for name, target in self._adaptation.rules(request.scope[KEY]).aliases.items()
        }
        named = {name: {**served[target], "id": name} for name, target in aliases.items() if target in served}
        return [*served.values(), *(model for name, model in named.items() if name not in served and "*" not in name)]

    async def _listed_by(self, engine: Engine, request: Request) -> list[Model]:
        """Lists an engine's models by a request that is sent like a call, with the provider's key where calls have it."""
        headers = passed_on(request.scope["headers"], credentials=self._passes_authorization)
        reply = await self._upstream.get(engine.url.removesuffix("/v1") + "/v1/models", headers)
        if 400 <= reply.status < 500:
            raise UpstreamRefused(f"the engine answers {reply.status}", reply.status)
        if reply.status != 200:
            raise UpstreamBroken(f"the engine answers {reply.status}")
        try:
            data = loads(reply.body)["data"]
            return [model for model in data if isinstance(model["id"], str)]
        except (ValueError, TypeError, KeyError) as broken:
            raise UpstreamBroken("the engine's list of models is malformed", code="upstream_bad_reply") from broken


def _anthropic(model: Model) -> Model:
    at = datetime.fromtimestamp(count(model.get("created"), 0), UTC)
    return {"type": "model", "id": model["id"], "display_name": model["id"], "created_at": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
