"""A reward model behind HTTP, as served by vLLM's pooling runner: `/classify`, or `/pooling` with token_classify.

The server puts the conversation into the model's own chat template and tokenizer; this sends messages and reads numbers. Its
raw output x (`use_activation: false`; true: behind vLLM's activation, a sigmoid of one label, a softmax of several) becomes
x without `scale`, and (min(max(x, lo), hi) - lo) / (hi - lo) with `scale: [lo, hi]`.

The value of a call, of a turn with what came after it (`next`) or of a trajectory is that at the last token of its
conversation. `steps`: at the last token after each reply, each in its own call's conversation; with `step_tag`, for
models that answer only there, one request whose replies end with the tag, and a row per tag.
"""

import asyncio
import math
import os
import re
import reprlib
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.http_client import ODD, HttpClient, Refused
from claw_r1.consumers.rewards.judged import Judged, JudgedCall, JudgedMessage, Scope
from claw_r1.consumers.rewards.kinds import Kind, ScorerSettings
from claw_r1.consumers.rewards.scorer import GaveUp, Opinion, TokenCost

TOO_LONG = re.compile(r"maximum context length|max_model_len|too long|too large", re.IGNORECASE)
"""The errors of servers for an input that they cannot take whole."""
OTHER_TASK = "pooling_task"
"""The error of vLLM where it serves the model for the other endpoint."""
ScoreRow = list[float]


class PoolingSettings(ScorerSettings):
    """The settings of a reward model."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("call", "next", "steps", "trajectory")
    INCIDENTAL: ClassVar[frozenset[str]] = ScorerSettings.INCIDENTAL | {"concurrency", "key_variable"}

    url: str = Field(pattern=r"^https?://[^\s/]+")
    """The address of the server: `claw rewards serve` prints it."""
    model: str | None = None
    """Name of the model there; not set: the one that it serves."""
    endpoint: Literal["classify", "pooling"] = "classify"
    """`classify` for a model that gives one row per conversation, `pooling` for one that gives a row per token."""
    step_tag: str | None = Field(default=None, min_length=1)
    """The step tag for scope steps with endpoint pooling: the text behind each reply at which a process-reward model
    answers."""
    index: int | None = Field(default=None, ge=0)
    """The index of the number in a row; needed where the model has several labels."""
    use_activation: bool = False
    """The server applies the model's activation; otherwise the numbers are logits."""
    scale: tuple[float, float] | None = None
    """[lo, hi]: clipped to it, and mapped to 0..1."""
    truncate: bool = False
    """The front of a conversation that is too long is cut; otherwise it fails as `too_long`."""
    concurrency: int = Field(default=32, ge=1, le=1024)
    """Subjects that are with the server at once, which it puts into one batch."""
    key_variable: str | None = None
    """Environment variable with the server's API key."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.scale is not None and self.scale[0] >= self.scale[1]:
            raise ValueError("scale is [lo, hi] with lo below hi")
        if self.step_tag is not None and (self.scope, self.endpoint) != ("steps", "pooling"):
            raise ValueError("step_tag is for scope steps with endpoint pooling")
        return self

    def scaled(self, number: float) -> float:
        """The formula above."""
        if self.scale is None:
            return number
        low, high = self.scale
        return (min(max(number, low), high) - low) / (high - low)


class RewardModel:
    """The `RewardScorer` of one slot."""

    def __init__(self, settings: PoolingSettings) -> None:
        """Raises ConsumerError where the key is not there."""
        self._settings = settings
        self._headers: dict[str, str] = {}
        if settings.key_variable is not None:
            if not (key := os.environ.get(settings.key_variable, "").strip()):
                raise ConsumerError(f"{settings.slot}: the variable {settings.key_variable} holds no key")
            self._headers["authorization"] = f"Bearer {key}"
        self._turns = asyncio.Semaphore(settings.concurrency)
        self._client = HttpClient(settings.concurrency)

    def judge(self, subjects: Sequence[Judged]) -> Sequence["Future[Opinion]"]:
        """At once, as many as `concurrency`; the time of a subject runs from its turn on."""
        return [self._client.submit(self._judged(subject)) for subject in subjects]

    def close(self) -> None:
        """Ends requests and connections. Idempotent."""
        self._client.close()

    async def _judged(self, subject: Judged) -> Opinion:
        cost = TokenCost()
        try:
            values = await self._values(subject, cost)
        except GaveUp as error:
            detail = " ".join(filter(None, (error.detail, cost.remark)))
            raise GaveUp(error.reason, detail, tokens=cost.tokens) from error
        return Opinion(values=values, detail=cost.remark, tokens=cost.tokens)

    async def _values(self, subject: Judged, cost: TokenCost) -> tuple[float, ...]:
        """Raises GaveUp."""
        if not subject.answers:
            return ()
        async with self._turns:
            deadline_s = time.monotonic() + self._settings.timeout_s
            if self._settings.step_tag is not None:
                try:
                    messages = _tagged(subject, self._settings.step_tag)
                except ODD as error:
                    raise GaveUp("unreadable", f"the conversation is no text: {error}") from error
                rows = await self._rows(messages, deadline_s, cost)
                if len(rows) != subject.answers:
                    detail = f"{len(rows)} rows for {subject.answers} steps; is step_tag one token of the model?"
                    raise GaveUp("wrong_length", detail)
                return tuple(map(self._value, rows))
            conversations = _conversations(subject)
            results = await asyncio.gather(
                *(self._rows(messages, deadline_s, cost) for messages in conversations), return_exceptions=True
            )
        if failure := next((result for result in results if isinstance(result, BaseException)), None):
            raise failure
        return tuple(self._value(rows[-1]) for rows in results if not isinstance(rows, BaseException))

    async def _rows(self, messages: Sequence[JudgedMessage], deadline_s: float, cost: TokenCost) -> list[ScoreRow]:
        """The model's rows on one conversation, at least one. Raises GaveUp."""
        settings = self._settings
        url = f"{settings.url.rstrip('/')}/{settings.endpoint}"
        body: dict[str, Any] = {"messages": messages, "use_activation": settings.use_activation}
        if settings.model is not None:
            body["model"] = settings.model
        if settings.endpoint == "pooling":
            body["task"] = "token_classify"
        if settings.truncate:
            body |= {"truncate_prompt_tokens": -1, "truncation_side": "left"}
        try:
            answer, _ = await self._client.post_json(url, body, self._headers, deadline_s)
        except Refused as refused:
            if TOO_LONG.search(refused.body) and refused.status in (400, 413, 422):
                raise GaveUp("too_long", refused.detail) from refused
            if refused.status in (404, 405) or OTHER_TASK in refused.body:
                raise GaveUp("wrong_shape", f"{url} is not what this server has: {refused.detail}") from refused
            raise
        rows = _rows_of(answer, settings.endpoint)
        cost.add(answer, messages)
        return rows

    def _value(self, row: ScoreRow) -> float:
        index = self._settings.index
        if index is None and len(row) != 1:
            raise GaveUp("wrong_shape", f"the model has {len(row)} labels: say which, by index")
        if len(row) <= (index := index or 0):
            raise GaveUp("wrong_shape", f"the model has {len(row)} labels, none at index {index}")
        if not math.isfinite(value := row[index]):
            raise GaveUp("not_a_number", f"the model said {value}")
        return self._settings.scaled(value)


def _conversations(subject: Judged) -> list[list[JudgedMessage]]:
    """Returns the conversations that the model reads, one per value. Raises GaveUp where words are lost."""
    if subject.scope == "trajectory":
        if not subject.conversation:
            raise GaveUp("text_lost", "nothing of its conversation can be read")
        return [list(subject.conversation)]
    after = subject.scope == "next"
    return [[*_conversation(call), *((call.after or ()) if after else ())] for call in subject.calls]


def _conversation(call: JudgedCall) -> list[JudgedMessage]:
    """The conversation up to and with the reply."""
    if call.reply is None or not call.messages:
        raise GaveUp("text_lost", f"nothing of call {call.call_id} can be read")
    return [*call.messages, call.reply]


def _tagged(subject: Judged, tag: str) -> list[JudgedMessage]:
    """The last call's conversation, in which each reply that is judged ends with the tag."""
    ends = [len(_conversation(call)) - 1 for call in subject.calls]
    messages = _conversation(subject.calls[-1])
    if ends != sorted(set(ends)) or any(
        messages[end] != call.reply for end, call in zip(ends, subject.calls, strict=True)
    ):
        raise GaveUp("wrong_shape", "its calls are not one conversation, which step_tag needs")
    for end in ends:
        messages[end] = {**messages[end], "content": f"{messages[end].get('content') or ''}{tag}"}
    return messages


def _rows_of(answer: Any, endpoint: str) -> list[ScoreRow]:
    """Raises GaveUp for what is not as vLLM writes it."""
    try:
        (item,) = answer["data"]
        rows = [item["probs"]] if endpoint == "classify" else item["data"]
        if rows and all(isinstance(row, list) and row and all(map(_is_number, row)) for row in rows):
            return [[float(number) for number in row] for row in rows]
    except ODD:
        pass
    raise GaveUp("wrong_shape", f"no {endpoint} answer: {reprlib.repr(answer)}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


KIND = Kind(PoolingSettings, RewardModel)
