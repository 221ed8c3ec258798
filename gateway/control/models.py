"""GET …/v1/models: what can be called here."""

from fastapi.responses import JSONResponse, Response

from gateway.errors import NoWorker, UpstreamBroken
from gateway.upstream.engines import Engine, WorkerTable
from gateway.upstream.pool import HttpUpstream


class Models:
    """Lists the models of live workers; with fixed upstreams, passes on what the first one lists."""

    def __init__(self, workers: WorkerTable, upstream: HttpUpstream) -> None:
        self._workers, self._upstream = workers, upstream

    async def list(self) -> Response:
        """The list in OpenAI's shape. Raises NoWorker when nothing serves anything."""
        live = self._workers.live()
        fixed = [engine for engine in live if engine.fixed]
        if fixed:
            return await self._passed_on(fixed[0])
        if not live:
            raise NoWorker("no rollout worker is ready", retry_after_s=1.0)
        names = sorted({engine.model for engine in live if engine.model})
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "claw"} for name in names]
        return JSONResponse({"object": "list", "data": data})

    async def _passed_on(self, engine: Engine) -> Response:
        reply = await self._upstream.get(engine.url.removesuffix("/v1") + "/v1/models", {})
        if reply.status >= 500:
            raise UpstreamBroken(f"the engine answers {reply.status}")
        return Response(reply.body, reply.status, media_type="application/json")
