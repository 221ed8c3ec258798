"""POST …/v1/messages/count_tokens: answered by an engine, which has the tokenizer. It is no call, and nothing
is captured."""

from fastapi import Request
from fastapi.responses import Response

from claw_r1.gateway.adaptation import Adaptation
from claw_r1.gateway.anthropic.errors import anthropic_error, error_message
from claw_r1.gateway.call_protocol import CallRequest
from claw_r1.gateway.errors import InvalidRequest, UpstreamRefused
from claw_r1.gateway.foreign_json import object_of
from claw_r1.gateway.headers import passed_on
from claw_r1.gateway.http.asgi import IDENTITY, KEY
from claw_r1.gateway.paths import COUNT_TOKENS
from claw_r1.gateway.upstream.dispatch import CallProgress, Dispatch, Dispatcher, EngineAnswer
from claw_r1.schemas.envelopes import new_id
from claw_r1.schemas.events import Sampling

UNSAMPLED = Sampling(temperature=1.0, top_p=1.0, top_k=0)


class CountingRoute:
    """The engine's route, which streams nothing."""

    path = f"/v1/{COUNT_TOKENS}"
    stream_type = "text/event-stream"


class TokenCounting:
    """Sends requests to engines as calls are sent: by model and aliases, and again where one is away."""

    def __init__(self, dispatcher: Dispatcher, adaptation: Adaptation, *, passes_authorization: bool) -> None:
        self._dispatcher, self._adaptation = dispatcher, adaptation
        self._passes_authorization = passes_authorization

    async def count_tokens(self, request: Request) -> Response:
        """The engine's answer; its refusals are in Anthropic's shape. Raises GatewayError."""
        body = self._adaptation.adapt(await request.body(), request.scope[KEY], samples=False).body
        identity, headers = request.scope[IDENTITY], request.scope["headers"]
        dispatch = Dispatch(
            protocol=CountingRoute(),
            request=CallRequest(body=body, forwarded=body, model=_model(body), sampling=UNSAMPLED),
            trajectory=identity.trajectory_id if identity else "",
            run_id=None,
            call_id=new_id(),
            trains=False,
            passed_on=passed_on(headers, credentials=self._passes_authorization),
        )
        answer = await self._dispatcher.send(dispatch, CallProgress())
        assert isinstance(answer, EngineAnswer), "nothing is streamed"
        reply, content = answer.reply, answer.reply.body
        if reply.status != 200 and error_message(content) is None:
            content = anthropic_error(
                UpstreamRefused(_message(content) or f"the engine answers {reply.status}", reply.status)
            )
        return Response(content, reply.status, media_type="application/json")


def _model(body: bytes) -> str | None:
    fields = object_of(body)
    model = fields.get("model") if fields is not None else None
    if fields is None or not (model is None or isinstance(model, str)):
        raise InvalidRequest("the body must be a JSON object, and its model a string", param="model")
    return model or None


def _message(body: bytes) -> str | None:
    """Returns the message of an error in OpenAI's shape, in which engines refuse what they cannot parse."""
    error = (object_of(body) or {}).get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else None
