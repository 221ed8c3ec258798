"""Exact tokens and their policy versions on vLLM 0.32's model routes, in one hop.

A request with the header `x-claw-tokens` gets the samples, on any route (`generation.py`), in order:

    JSON reply  member   {...,"claw_tokens":[{...}]}    the last one; header x-claw-tokens: its length, comma and all
    SSE reply   comment  : claw.tokens=[{...}]          after the last token, before the event that follows it

Any other gets vLLM's reply as it is.
"""

import os
from typing import TYPE_CHECKING, Any

from claw_r1.rollout.plugin import engine_tap
from claw_r1.rollout.plugin.control_routes import ControlRequests
from claw_r1.rollout.plugin.guard import CONTROLS
from claw_r1.rollout.plugin.occupancy import Occupancy
from claw_r1.rollout.process.adapter_place import VARIABLE as ADAPTER_VARIABLE
from claw_r1.schemas.http import TOKENS_CAPABILITIES, TOKENS_COMMENT, TOKENS_HEADER, TOKENS_MEMBER

if TYPE_CHECKING:
    from argparse import Namespace

    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TRACKED_PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})
PAUSES = {"/pause": True, "/resume": False}
KV_USAGE = "vllm:kv_cache_usage_perc"


class TokenHandover:
    """Middleware (`--middleware`). `occupancy` knows the model calls inside this server, the
    supervisor's own left out."""

    occupancy = Occupancy()  # of the class: vLLM constructs the instance, and /claw/info has no way to it

    def __init__(self, app: "ASGIApp") -> None:
        self.app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """ASGI."""
        if scope["type"] != "http" or scope["path"] not in TRACKED_PATHS or scope.get(CONTROLS):
            await self.app(scope, receive, send)
            if scope["type"] == "http" and scope["path"] in PAUSES:
                self.occupancy.pause(PAUSES[scope["path"]])
            return
        wants_tokens = any(name == TOKENS_HEADER.encode() for name, _ in scope["headers"])
        reply = ReplyWithTokens(send) if wants_tokens else None
        token = engine_tap.current.set(reply.record if reply else None)
        self.occupancy.enter()
        try:
            await self.app(scope, receive, reply.send if reply else send)
        finally:
            self.occupancy.leave()
            engine_tap.current.reset(token)


class ReplyWithTokens:
    """Passes one reply on and adds its tokens as soon as they are complete."""

    def __init__(self, send: "Send") -> None:
        self.record = engine_tap.Generations()
        self._send = send
        self._is_stream = False
        self._start: Message | None = None
        """Held back, with what came of its body: its length is known when the tokens are."""
        self._body = b""

    async def send(self, message: "Message") -> None:
        """ASGI send."""
        if message["type"] == "http.response.start":
            self._is_stream = any(
                k == b"content-type" and v.startswith(b"text/event-stream") for k, v in message["headers"]
            )
            if not self._is_stream and message["status"] == 200:
                self._start = message
                return
        elif self._start is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_whole(self._start)
            return
        elif self._is_stream and self.record.is_ready() and _is_event_boundary(message.get("body", b"")):
            comment = TOKENS_COMMENT.encode() + self.record.dump() + b"\n\n"
            message = {**message, "body": comment + message.get("body", b"")}
        await self._send(message)

    async def _send_whole(self, start: "Message") -> None:
        """A JSON object with one member more, whose length a header tells, so that nobody has to look for it."""
        headers, body = start["headers"], self._body
        if self.record.is_ready() and body.endswith(b"}"):
            member = b"," + TOKENS_MEMBER.encode() + self.record.dump()
            body = body[:-1] + member + b"}"
            headers = [(k, v) for k, v in headers if k != b"content-length"]
            headers += [(b"content-length", b"%d" % len(body)), (TOKENS_HEADER.encode(), b"%d" % len(member))]
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _is_event_boundary(body: bytes) -> bool:
    """A comment inside a half-written event would break it."""
    return not body or body.startswith((b"data:", b"event:", b":"))


def kv_usage() -> float | None:
    """Share of the KV cache in use, 0 to 1, as vLLM's own metric says; None before it has said anything."""
    from prometheus_client import REGISTRY

    families = REGISTRY.restricted_registry([KV_USAGE]).collect()
    return next((sample.value for family in families for sample in family.samples), None)


class ClawTokens:
    """Entry point `claw_tokens` of vllm.endpoint_plugins: taps the engine and answers GET /claw/info."""

    name = "claw_tokens"
    required_tasks = ("generate",)

    def attach_router(self, app: "FastAPI") -> None:
        """Register the capability route: ask the worker what it can do, never compare version numbers."""
        from fastapi import Request

        requests = ControlRequests()
        requests.attach(app)

        @app.get("/claw/info")
        async def info(request: Request) -> dict[str, object]:
            return {
                "capabilities": TOKENS_CAPABILITIES,
                "label": await app.state.engine_client.get_weight_version(),
                "in_flight": TokenHandover.occupancy.calls,
                "seconds": TokenHandover.occupancy.seconds(),
                "kv_usage": kv_usage(),
                "control_requests": requests.take() if request.scope.get(CONTROLS) else [],
            }

    async def init_state(self, engine_client: Any, state: Any, args: "Namespace") -> None:  # noqa: ARG002  # vLLM's signature and types
        """vLLM calls it once, before the first request."""
        if engine_client is not None:
            engine_tap.tap_engine(engine_client, adapter_request(os.environ.get(ADAPTER_VARIABLE)))


def adapter_request(path: str | None) -> Any:  # Any: vLLM's LoRARequest
    """Returns what names the adapter at this path, the same for all versions."""
    if path is None:
        return None
    from vllm.lora.request import LoRARequest

    return LoRARequest("claw", 1, path)
