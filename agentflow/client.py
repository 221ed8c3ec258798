"""The gateway as an agent sees it: open a group, call the model, assign rewards, complete.

Invariant: what this client counts as replied has been captured, because the gateway answers only after its event is
durable. One client serves many episodes at once.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote

from claw_r1.agentflow.bodies import (
    ChatReply,
    GroupOpen,
    GroupSpec,
    JsonObject,
    RetryAfter,
    TokenReply,
    TrajectoryId,
    TrajectoryOutcome,
)
from claw_r1.agentflow.errors import MalformedReply
from claw_r1.agentflow.settings import AgentFlowSettings
from claw_r1.agentflow.transport import BUSY, GatewayAnswer, GatewayTransport
from claw_r1.schemas.http import (
    AGENT_HEADER,
    CALL_ID_HEADER,
    CHANNEL_HEADER,
    KIND_HEADER,
    POLICY_VERSION_HEADER,
    REWARDS_HEADER,
    RUN_ID_HEADER,
    CallKind,
)


class GatewayClient:
    """Async context manager. Every method may raise GatewayUnavailable, RequestRefused, MalformedReply."""

    def __init__(
        self,
        base_url: str,
        *,
        run_id: str | None = None,
        channel: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        settings: AgentFlowSettings | None = None,
    ) -> None:
        """`run_id`, `channel` and `agent` label every call; `model` is sent where the gateway serves several."""
        self.settings = settings or AgentFlowSettings()
        self._model = model
        labels = {RUN_ID_HEADER: run_id, CHANNEL_HEADER: channel, AGENT_HEADER: agent}
        self._transport = GatewayTransport(base_url, _without_none(labels), self.settings)
        self._riding: dict[str, str] = {}
        self._kind: str = CallKind.MAIN

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def open_group(self, spec: GroupSpec) -> GroupOpen | RetryAfter:
        """Declare a group; RetryAfter while the trainer has enough under way (bounded staleness)."""
        answer = await self._transport.post("/groups", _without_none(asdict(spec)), busy_is_an_answer=True)
        if answer.status == BUSY:
            retry_after_s = answer.retry_after_s()
            pause_s = self.settings.retry_pause_s if retry_after_s is None else retry_after_s
            return RetryAfter(min(pause_s, self.settings.retry_pause_max_s), answer.code())
        return GroupOpen(str(answer.body.get("group_id", spec.group_id)))

    async def chat(self, trajectory: TrajectoryId, messages: Sequence[JsonObject], **sampling: Any) -> ChatReply:
        """One model call. `sampling`: any field of OpenAI's chat body (JSON values of the caller's, hence Any)."""
        body = _without_none({"model": self._model, "messages": list(messages), **sampling})
        return _chat_reply(await self._call(trajectory, "chat/completions", body))

    async def message(self, trajectory: TrajectoryId, messages: Sequence[JsonObject], **sampling: Any) -> ChatReply:
        """One model call in Anthropic's words. `sampling`: any field of its body; `max_tokens` has to be one."""
        body = _without_none({"model": self._model, "messages": list(messages), **sampling})
        return _message_reply(await self._call(trajectory, "messages", body))

    async def respond(self, trajectory: TrajectoryId, items: Sequence[JsonObject], **sampling: Any) -> ChatReply:
        """One model call as OpenAI's responses. `items`: its input; `sampling`: any other field of its body."""
        body = _without_none({"model": self._model, "input": list(items), **sampling})
        return _response_reply(await self._call(trajectory, "responses", body))

    async def generate(self, trajectory: TrajectoryId, prompt_ids: Sequence[int], **sampling: Any) -> TokenReply:
        """One model call by token ids. `sampling`: any field of OpenAI's completions body, as for `chat`."""
        fields = {"model": self._model, "return_token_ids": True, "logprobs": 0, **sampling}
        # The prompt stands last: calls that go on from each other then share the front of their bodies.
        body = {**_without_none(fields), "prompt": list(prompt_ids)}
        return _token_reply(await self._call(trajectory, "completions", body))

    async def register(self, trajectory: TrajectoryId, **about: Any) -> None:
        """Announce a trajectory before its first call (optional): channel, agent, task, tags, metadata."""
        await self._transport.post(_path(trajectory, "register_trajectory"), about)

    async def reward(
        self,
        trajectory: TrajectoryId,
        value: float,
        *,
        name: str | None = None,
        call_id: str | None = None,
        revision: int | None = None,
    ) -> None:
        """Assign a reward to a call, or to the trajectory when none is given; a higher revision wins.

        name: by default `outcome`, for a call, too (`Episode.reward`: `step`). Rewards of different slots (subject and name) add up;
        within a slot the later one replaces the earlier.
        """
        body = _without_none({"value": value, "name": name, "call_id": call_id, "revision": revision})
        await self._transport.post(_path(trajectory, "rewards"), body)

    def carrying(self, rewards: Sequence[JsonObject]) -> "GatewayClient":
        """Returns this client with rewards, as `reward` takes them, that each of its calls and completions takes along: the gateway
        stores them before it does anything else."""
        client = copy(self)
        client._riding = {REWARDS_HEADER: as_header(rewards)} if rewards else {}
        return client

    def calling_as(self, kind: str) -> "GatewayClient":
        """Returns this client with calls of that kind, a word of `CallKind`. Without one they are main: a call without tools would
        else count as a side call, and not be trained, once another of its trajectory has tools."""
        client = copy(self)
        client._kind = kind
        return client

    async def next_ordinal(self, order: str) -> int:
        """The ordinal behind all groups of the order that were ever opened, by whomever."""
        ordinal = (await self._transport.get(f"/orders/{quote(order, safe='')}")).body.get("next_ordinal")
        if not isinstance(ordinal, int):
            raise MalformedReply("the gateway's reply lacks the order's next ordinal")
        return ordinal

    async def task_returns(self, order: str) -> dict[str, list[list[float]]]:
        """Returns the lowest and the highest return of the latest groups of an order, by the digest of their task."""
        path = f"/orders/{quote(order, safe='')}/returns"
        tasks = (await self._transport.get(path)).body.get("tasks")
        if not isinstance(tasks, dict):
            raise MalformedReply("the gateway does not say how the tasks of an order went")
        return tasks

    async def replied(self, trajectory: TrajectoryId) -> list[JsonObject]:
        """`call_id` and `policy_version` of the calls that the gateway's process replied to; another process has others."""
        return list((await self._transport.get(_path(trajectory, "calls"))).body.get("calls", []))

    async def models(self) -> list[str]:
        """Names of the models that can be called."""
        return [str(model["id"]) for model in (await self._transport.get("/v1/models")).body.get("data", [])]

    def base_url(self, trajectory: TrajectoryId) -> str:
        """Returns the base URL under which a client of OpenAI's API plays this trajectory."""
        return self._transport.base_url + _path(trajectory, "")[:-1]

    async def complete(
        self,
        trajectory: TrajectoryId,
        reward: float | None = None,
        *,
        calls: int | None,
        rewards: int = 0,
        status: TrajectoryOutcome = "completed",
        revision: int | None = None,
    ) -> None:
        """End the trajectory. `calls` and `rewards` say how many must be there before it may be trained on; None: those
        before it in the log.

        `reward` is a slot of its own and adds up with rewards assigned before; completing again replaces it as a whole.
        A higher `revision` outranks a lower one whatever gateways' clocks say, and `failed` a `completed` below it.
        """
        fields = {"reward": reward, "status": status, "calls": calls, "rewards": rewards or None, "revision": revision}
        await self._transport.post(_path(trajectory, "complete_trajectory"), _without_none(fields), self._riding)

    async def _call(self, trajectory: TrajectoryId, action: str, body: JsonObject) -> GatewayAnswer:
        return await self._transport.post(_path(trajectory, action), body, {KIND_HEADER: self._kind, **self._riding})


async def open_when_admitted(client: GatewayClient, spec: GroupSpec, on_refusal: Callable[[str], None]) -> GroupOpen:
    """Repeat the request until the group is admitted; `on_refusal` gets the reason of each refusal."""
    while isinstance(answer := await client.open_group(spec), RetryAfter):
        on_refusal(answer.reason)
        await asyncio.sleep(answer.seconds)
    return answer


def as_header(rewards: Sequence[JsonObject]) -> str:
    """Returns rewards as a header has them, in ASCII."""
    return json.dumps([_without_none(dict(reward)) for reward in rewards], separators=(",", ":"))


def _path(trajectory: TrajectoryId, action: str) -> str:
    return f"/{quote(trajectory.trajectory_id, safe='')}/{quote(trajectory.group_id, safe='')}/v1/{action}"


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that have a value: JSON of mixed types, hence Any."""
    return {name: value for name, value in fields.items() if value is not None}


def _chat_reply(answer: GatewayAnswer) -> ChatReply:
    try:
        choice = answer.body["choices"][0]
        message = _without_none(choice["message"])
        usage = answer.body.get("usage") or {}
        return ChatReply(
            text=message.get("content") or "",
            message=message,
            finish_reason=choice.get("finish_reason"),
            call_id=answer.headers.get(CALL_ID_HEADER),
            policy_version=_policy_version(answer),
            prompt_tokens=int(usage.get("prompt_tokens", 0)),
            completion_tokens=int(usage.get("completion_tokens", 0)),
            raw=answer.body,
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise MalformedReply(f"not a chat completion: {error!r}") from error


def _policy_version(answer: GatewayAnswer) -> str | None:
    """The label itself: a header holds it percent-encoded, since a run may have any name."""
    label = answer.headers.get(POLICY_VERSION_HEADER)
    return None if label is None else unquote(label)


def _message_reply(answer: GatewayAnswer) -> ChatReply:
    try:
        blocks = answer.body["content"]
        text = "".join([block["text"] for block in blocks if block["type"] == "text"])
        message = {"role": "assistant", "content": blocks}
        return _reply_of(answer, text, message, answer.body.get("stop_reason"))
    except (KeyError, TypeError, AttributeError) as error:
        raise MalformedReply(f"not a message: {error!r}") from error


def _response_reply(answer: GatewayAnswer) -> ChatReply:
    try:
        items = [item for item in answer.body["output"] if item["type"] == "message"]
        text = "".join([part["text"] for item in items for part in item["content"] if part["type"] == "output_text"])
        return _reply_of(answer, text, {"role": "assistant", "content": text}, answer.body.get("status"))
    except (KeyError, TypeError, AttributeError) as error:
        raise MalformedReply(f"not a response: {error!r}") from error


def _reply_of(answer: GatewayAnswer, text: str, message: dict[str, Any], finish_reason: str | None) -> ChatReply:
    """Makes the reply of a protocol that counts in these words."""
    usage = answer.body.get("usage") or {}
    return ChatReply(
        text=text,
        message=message,
        finish_reason=finish_reason,
        call_id=answer.headers.get(CALL_ID_HEADER),
        policy_version=_policy_version(answer),
        prompt_tokens=int(usage.get("input_tokens", 0)),
        completion_tokens=int(usage.get("output_tokens", 0)),
        raw=answer.body,
    )


def _token_reply(answer: GatewayAnswer) -> TokenReply:
    try:
        choice = answer.body["choices"][0]
        ids, logprobs = list(choice["token_ids"]), list(choice["logprobs"]["token_logprobs"])
        reply = TokenReply(
            ids=ids,
            logprobs=logprobs,
            text=choice.get("text") or "",
            finish_reason=choice.get("finish_reason"),
            call_id=answer.headers.get(CALL_ID_HEADER),
            policy_version=_policy_version(answer),
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise MalformedReply(f"no completion with token ids and log-probabilities: {error!r}") from error
    if len(ids) != len(logprobs):
        raise MalformedReply(f"a completion of {len(ids)} ids and {len(logprobs)} log-probabilities")
    return reply
