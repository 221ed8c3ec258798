"""A gateway of forty lines: the HTTP contract, a scripted model, and facts kept in a list."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4

from aiohttp import web

Model = Callable[[Sequence[Mapping[str, Any]]], str | dict[str, Any]]


@dataclass
class FakeGateway:
    """`model` answers from the messages, with a text or a message, `completes` from ids with ids; `refusals` groups get 429; `outages` requests get 503 or lose the connection."""

    model: Model = lambda messages: "hello"
    completes: Callable[[list[int]], list[int]] = lambda prompt_ids: [7, 8]
    refusals: int = 0
    refusal: str = "staleness"
    outages: list[str] = field(default_factory=list)
    requests: list[tuple[str, dict[str, Any], dict[str, str]]] = field(default_factory=list)
    ordinals: dict[str, int] = field(default_factory=dict)
    """Order -> its next ordinal."""
    returns: dict[str, list[list[float]]] = field(default_factory=dict)
    """Digest of a task -> lowest and highest return of its groups, of any order."""
    rivals: int = 0
    """Ordinals that another runner opens as soon as one knows where to begin."""
    refused_values: Sequence[float] = ()
    """Of rewards: a request with such a one is refused."""
    keys: set[str] = field(default_factory=set)
    port: int = 0
    policy_version: str = "run/3"

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/groups", self._open_group)
        app.router.add_get("/orders/{order}", self._next_ordinal)
        app.router.add_get("/orders/{order}/returns", self._task_returns)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/{trajectory}/{group}/v1/calls", self._replied)
        app.router.add_post("/{trajectory}/{group}/v1/{action:.+}", self._act)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bodies(self, action: str) -> list[dict[str, Any]]:
        return [body for name, body, _ in self.requests if name == action]

    async def _open_group(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.refusals:
            self.refusals -= 1
            error = {"message": "too far ahead", "type": "rate_limit", "code": self.refusal, "retry_after_s": 0.01}
            return web.json_response({"error": error}, status=429, headers={"Retry-After": "1"})
        if (ordinal := body.get("ordinal")) is not None:
            order = body["group_id"].rpartition("-")[0]
            if ordinal < self.ordinals.get(order, 0):
                error = {"message": "another runner has it", "type": "invalid_request_error", "code": "ordinal_taken"}
                return web.json_response({"error": error}, status=409)
            self.ordinals[order] = ordinal + 1
        self.requests.append(("groups", body, dict(request.headers)))
        return web.json_response({"group_id": body["group_id"]}, status=201)

    async def _next_ordinal(self, request: web.Request) -> web.Response:
        order = request.match_info["order"]
        ordinal = self.ordinals.get(order, 0)
        self.ordinals[order] = ordinal + self.rivals
        return web.json_response({"next_ordinal": ordinal})

    async def _task_returns(self, _: web.Request) -> web.Response:
        return web.json_response({"tasks": self.returns})

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny"}]})

    async def _replied(self, request: web.Request) -> web.Response:
        ids = request.match_info["trajectory"], request.match_info["group"]
        calls = [body for body in self.bodies("chat/completions") if body["ids"] == ids]
        reports = [{"call_id": str(number), "policy_version": self.policy_version} for number in range(len(calls))]
        return web.json_response({"calls": reports})

    async def _act(self, request: web.Request) -> web.Response:
        body, ids, action = await request.json(), request.match_info, request.match_info["action"]
        lowered = {name.lower(): value for name, value in request.headers.items()}
        rewards = [body] if action == "rewards" else json.loads(lowered.get("x-claw-rewards", "[]"))
        if any(reward["value"] in self.refused_values for reward in rewards):
            return web.json_response({"error": {"message": "not this one", "code": "not_its_source"}}, status=403)
        key = lowered.get("x-claw-idempotency-key", uuid4().hex)
        if action != "rewards" and key not in self.keys:  # a repetition says nothing new
            named = {"ids": (ids["trajectory"], ids["group"])}
            self.requests.extend(("rewards", {**reward, **named}, lowered) for reward in rewards)
        self.keys.add(key)
        self.requests.append((action, {**body, "ids": (ids["trajectory"], ids["group"])}, lowered))
        if self.outages and (outage := self.outages.pop(0)) != "none":
            if outage == "cut" and request.transport is not None:
                request.transport.close()
            return web.json_response(
                {"error": {"message": outage, "code": outage}}, status=int(outage.strip("cut") or 503)
            )
        if not action.endswith("completions"):
            return web.json_response({"event_id": uuid4().hex})
        return self._completion(self._chat(body) if "messages" in body else self._tokens(body), ids)

    def _chat(self, body: dict[str, Any]) -> dict[str, Any]:
        said = self.model(body["messages"])
        fields = said if isinstance(said, dict) else {"content": said, "tool_calls": None}
        return {"message": {"role": "assistant", "refusal": None, **fields}}

    def _tokens(self, body: dict[str, Any]) -> dict[str, Any]:
        ids = self.completes(body["prompt"])
        return {"text": "".join(map(chr, ids)), "token_ids": ids, "logprobs": {"token_logprobs": [-0.5] * len(ids)}}

    def _completion(self, sampled: dict[str, Any], ids: Mapping[str, str]) -> web.Response:
        choice = {"index": 0, **sampled, "finish_reason": "stop"}
        headers = {
            "x-claw-group": ids["group"],
            "x-claw-trajectory": ids["trajectory"],
            "x-claw-call-id": uuid4().hex,
            "x-claw-policy-version": quote(self.policy_version),
        }
        usage = {"prompt_tokens": 5, "completion_tokens": 2}
        return web.json_response({"object": "chat.completion", "choices": [choice], "usage": usage}, headers=headers)
