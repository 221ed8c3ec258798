"""One episode as its flow sees it: a task, a model to talk to, rewards to assign.

Invariant: `calls` and `rewards` count what the gateway acknowledged, those of branches too, and rewards that wait for the next
request, which stores them before anything else: so a completion that carries them makes the trajectory ready for training only
when all of it has arrived, and no reply that this episode never saw.
"""

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

import orjson

from claw_r1.agentflow.bodies import ChatReply, EpisodeLimits, JsonObject, TokenReply, TrajectoryId, TrajectoryOutcome
from claw_r1.agentflow.client import GatewayClient, as_header
from claw_r1.agentflow.errors import EpisodeLimitExceeded, RequestRefused, RewardRefused, ToolError
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.http import OUTCOME_REWARD, REWARDS_HEADER, RIDING_MAX, STEP_REWARD, CallKind

FORBIDDEN = 403
RIDING_BYTES_MAX = 4096
"""The longest header of rewards that a request takes along: servers and proxies refuse much longer ones."""
T = TypeVar("T")
Reply = TypeVar("Reply", ChatReply, TokenReply)
CallTool = Callable[[str, JsonObject], Awaitable[str]]
"""From the name of a tool and its arguments to what the model reads of it. Raises ToolError for what the
model did wrong."""


class Branch:
    """One conversation of an episode: its own, or that of a sub-agent. Its calls are calls of the episode."""

    def __init__(self, episode: "Episode", kind: str = CallKind.MAIN) -> None:
        self.transcript: list[JsonObject] = []
        """The conversation as of the last call, its reply included; of calls by token ids, what they said."""
        self._episode = episode
        self._kind = kind

    async def chat(self, messages: Sequence[JsonObject], **sampling: Any) -> ChatReply:
        """One model call with the whole conversation so far. `sampling`: any field of OpenAI's chat body.

        Raises EpisodeLimitExceeded, and what the client raises.
        """
        reply = await self._episode.call(lambda client: client.calling_as(self._kind).chat, messages, sampling)
        self.transcript = [*messages, reply.message]
        return reply

    async def message(self, messages: Sequence[JsonObject], **sampling: Any) -> ChatReply:
        """Sends a message like `chat`, in Anthropic's form: `/v1/messages`, whose `max_tokens` has to be there."""
        reply = await self._episode.call(lambda client: client.calling_as(self._kind).message, messages, sampling)
        self.transcript = [*messages, reply.message]
        return reply

    async def respond(self, items: Sequence[JsonObject], **sampling: Any) -> ChatReply:
        """Sends items like `chat`, by OpenAI's `/v1/responses`: `items` is the input so far. Calls of tools stand in
        the reply's `raw`."""
        reply = await self._episode.call(lambda client: client.calling_as(self._kind).respond, items, sampling)
        self.transcript = [*items, reply.message]
        return reply

    async def generate(self, prompt_ids: Sequence[int], **sampling: Any) -> TokenReply:
        """One model call by token ids, whose reply is ids again. `sampling`: any field of OpenAI's completions body.

        The response is at most 16 tokens long where `max_tokens` is not set. Raises EpisodeLimitExceeded, and what the
        client raises.
        """
        reply = await self._episode.call(lambda client: client.calling_as(self._kind).generate, prompt_ids, sampling)
        self.transcript.append({"role": "assistant", "content": reply.text})
        return reply

    async def converse(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        call_tool: CallTool,
        *,
        turns_max: int = 16,
        **sampling: Any,
    ) -> ChatReply:
        """Chat until the model answers without calling a tool, or for the last of its turns; that reply.

        tools: as OpenAI's chat body has them. A call of no such tool, arguments that are no JSON object and a ToolError
        are told the model; whatever else `call_tool` raises is raised here.
        """
        conversation, offered = list(messages), {tool["function"]["name"] for tool in tools}
        for turn in count(1):
            reply = await self.chat(conversation, tools=list(tools), **sampling)
            tool_calls = reply.message.get("tool_calls") or ()
            if not tool_calls or turn >= turns_max:
                return reply
            conversation.append(reply.message)
            for tool_call in tool_calls:
                content = await _tool_result(tool_call["function"], offered, call_tool)
                conversation.append({"role": "tool", "tool_call_id": tool_call["id"], "content": content})
        raise AssertionError("unreachable")

    def branch(self, kind: str | None = None) -> "Branch":
        """A conversation beside this one, for a sub-agent: in the same trajectory, so that what the episode earns is its too.

        kind: what its calls are for, `main`, `side` or `subagent`; None: the same as here.
        """
        return Branch(self._episode, kind or self._kind)


async def _tool_result(function: JsonObject, offered: set[str], call_tool: CallTool) -> str:
    name = str(function.get("name"))
    try:
        arguments = orjson.loads(function.get("arguments") or "{}")
    except orjson.JSONDecodeError:
        arguments = None
    if name not in offered:
        return f"error: there is no tool {name!r}"
    if not isinstance(arguments, dict):
        return "error: the arguments must be a JSON object"
    try:
        return await call_tool(name, arguments)
    except ToolError as refusal:
        return f"error: {refusal}"


class Episode(Branch):
    """Made by the runner, handed to `AgentFlow.run`."""

    def __init__(
        self,
        client: GatewayClient,
        trajectory: TrajectoryId,
        *,
        task: JsonObject,
        seed: int,
        sampling: Mapping[str, Any] | None = None,
        on_version: Callable[[str], None] = lambda _: None,
        limits: EpisodeLimits | None = None,
    ) -> None:
        """`sampling` (fields of OpenAI's body, hence Any) overrides what the flow asks for: evaluation is greedy.

        `on_version` gets the label of the versions that sampled a reply, as soon as it is there. `limits`: by default those of
        the client's settings.
        """
        super().__init__(self)
        self.task = task
        """Equal for all members of the group."""
        self.seed = seed
        """The member's own, for a flow that draws at random."""
        self.trajectory = trajectory
        self.call_ids: list[str] = []
        """The call ids of the replies, in order: each is captured."""
        self.unanswered = 0
        """Calls that were asked and have no reply, or none yet."""
        self.policy_versions: set[str] = set()
        self.keeps_count = True
        """False: the calls are made elsewhere, and those that stand before the completion in the log belong to it."""
        self.tokens = 0
        """Sampled so far."""
        settings = client.settings
        self.limits = limits or EpisodeLimits(
            settings.episode_seconds_max, settings.episode_tokens_max, settings.episode_calls_max
        )
        self.exceeded: EpisodeLimitExceeded | None = None
        """The limit that this episode went beyond."""
        self._started_s = time.monotonic()
        self._client = client
        self._sampling = dict(sampling or {})
        self._on_version = on_version
        self._outcome: float | None = None
        self._assigned: dict[tuple[str | None, str], list[float]] = {}
        self.refusal: RewardRefused | None = None
        """The first of its rewards that was refused."""
        self._waiting: list[JsonObject] = []
        """The rewards that no request has taken along yet."""
        self._revision = 0

    @property
    def outcome(self) -> float | None:
        """Reward of the episode as a whole, sent with its completion: a slot of its own (`agent/completion`), beside what
        `reward` assigns."""
        return self._outcome

    @outcome.setter
    def outcome(self, value: float) -> None:
        self._outcome = _finite(value)

    async def call(
        self, send: Callable[[GatewayClient], Callable[..., Awaitable[Reply]]], content: object, sampling: JsonObject
    ) -> Reply:
        """A call of the episode or of one of its branches, counted. Raises EpisodeLimitExceeded, and what the client raises."""
        self.keep_limits(calls=self.calls + 1)
        parameters = {**sampling, **self._sampling}

        async def ask(client: GatewayClient) -> Reply:
            self.unanswered += 1
            reply = await send(client)(self.trajectory, content, **parameters)
            self.unanswered -= 1
            return reply

        reply = await self._carrying(ask)
        self.tokens += reply.completion_tokens
        self._note_call(reply.call_id, reply.policy_version)
        self.keep_limits(calls=self.calls)
        return reply

    def keep_limits(self, *, calls: int) -> None:
        """Raises EpisodeLimitExceeded when the episode is beyond a limit, or with that many calls would be."""
        seconds, limits = time.monotonic() - self._started_s, self.limits
        for unit, amount, limit in (
            ("s", seconds, limits.seconds),
            ("sampled tokens", self.tokens, limits.tokens),
            ("calls", calls, limits.calls),
        ):
            if self.exceeded is None and limit is not None and amount > limit:
                self.exceeded = EpisodeLimitExceeded(f"the episode took more than its {limit:g} {unit}")
        if self.exceeded is not None:
            raise self.exceeded

    def _note_call(self, call_id: str | None, policy_version: str | None) -> None:
        if call_id is not None:
            self.call_ids.append(call_id)
        if policy_version is not None:
            self.policy_versions.add(policy_version)
            self._on_version(policy_version)

    async def reward(self, value: float, *, name: str | None = None, call_id: str | None = None) -> None:
        """Assign a reward to a call (its `call_id`) or to the episode. It rides with the next call or the completion;
        `flush` stores it now.

        name: by default `outcome` for the episode and `step` for a call. Rewards of different slots (subject and name) add up,
        `outcome` among them; within a slot the later one replaces the earlier. Raises TypeError and ValueError for what cannot be sent.
        """
        _check_text(name, call_id)
        slot = (call_id, name or (OUTCOME_REWARD if call_id is None else STEP_REWARD))
        values, finite = self._assigned.setdefault(slot, []), _finite(value)
        self._revision = max(now_us(), self._revision + 1)  # above what the agent itself may have said at its base URL
        values.append(finite)
        self._waiting.append({"value": finite, "name": slot[1], "call_id": call_id, "revision": self._revision})

    async def flush(self) -> None:
        """Store the rewards that wait for the next call. Raises RewardRefused when all others are stored, and what the
        client raises."""
        refused: RequestRefused | None = None
        while self._waiting:
            reward = self._waiting.pop(0)
            try:
                await self._client.reward(self.trajectory, **reward)
            except RequestRefused as refusal:
                refused = refused or refusal
                self._assigned[reward["call_id"], reward["name"]].remove(reward["value"])
            except BaseException:
                self._waiting.insert(0, reward)
                raise
        if refused is not None:
            self.refusal = self.refusal or RewardRefused(refused.status, refused.message, refused.code)
            raise self.refusal

    async def _carrying(self, request: Callable[[GatewayClient], Awaitable[T]]) -> T:
        """The answer to a request that takes the waiting rewards along, where a header has room for them. One that is refused for a
        reward is repeated by nobody: the rewards are then stored one by one. Raises RewardRefused, and what the request raises."""
        if len(self._waiting) > RIDING_MAX or len(as_header(self._waiting)) > RIDING_BYTES_MAX:
            await self.flush()
        riding, self._waiting = self._waiting, []
        try:
            return await request(self._client.carrying(riding))
        except BaseException as error:
            self._waiting[:0] = riding
            if isinstance(error, RequestRefused) and (error.status == FORBIDDEN or error.is_of(REWARDS_HEADER)):
                await self.flush()
            raise

    async def announce(self) -> None:
        """Say whose trajectory it is, before something else makes calls that do not: channel, agent and run are the client's."""
        await self._client.register(self.trajectory)

    async def adopt_calls(self) -> None:
        """Take in the calls that something else made on this trajectory, as far as the gateway's process remembers them."""
        self.keeps_count = False
        for call in await self._client.replied(self.trajectory):
            self._note_call(call.get("call_id"), call.get("policy_version"))

    @property
    def base_url(self) -> str:
        """The base URL under which a client of OpenAI's API makes calls of this episode."""
        return self._client.base_url(self.trajectory)

    @property
    def sampling(self) -> JsonObject:
        """The sampling parameters that the runner sets for every call of this episode, whatever the flow sets."""
        return self._sampling

    async def served_models(self) -> list[str]:
        """Names of the models that can be called."""
        return await self._client.models()

    @property
    def calls(self) -> int:
        """Replies that carried a call id."""
        return len(self.call_ids)

    @property
    def rewards(self) -> int:
        """Slots that have a reward."""
        return sum(1 for values in self._assigned.values() if values)

    @property
    def earned(self) -> float | None:
        """The return: all rewards assigned so far and the outcome; None where nothing was rewarded. Added as in the pool, to the
        bit: those of one call, those of the whole, then these sums, each without rounding in between."""
        subjects: dict[str | None, list[float]] = {} if self.outcome is None else {None: [self.outcome]}
        for (call_id, _), values in self._assigned.items():
            if values:
                subjects.setdefault(call_id, []).append(values[-1])
        return math.fsum(map(math.fsum, subjects.values())) if subjects else None

    async def complete(self, status: TrajectoryOutcome) -> None:
        """End the trajectory; the runner does this. A failed episode has no outcome. Raises RewardRefused for a reward that waited
        until now, and what the client raises.

        Of two completions one counts as a whole: the later one, but `completed` before `failed`.
        """
        if status == "failed":
            self._outcome = None
        calls = self.calls if self.keeps_count else None
        await self._carrying(
            lambda client: client.complete(
                self.trajectory, self.outcome, calls=calls, rewards=self.rewards, status=status
            )
        )


def _finite(value: float) -> float:
    """Returns the reward as a plain float (a number of numpy's is none); raises ValueError for what no trainer can
    average."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a reward must be finite, not {number}")
    return number


def _check_text(*names: object) -> None:
    """Raises TypeError for what is no text, and ValueError for text that UTF-8 cannot say: what waits must be fit to be sent, since
    the completion takes it along."""
    for name in names:
        if isinstance(name, str):
            name.encode()
        elif name is not None:
            raise TypeError(f"a reward's name and call_id are strings, not {name!r}")


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """An episode that is over."""

    trajectory: TrajectoryId
    status: TrajectoryOutcome
    reported: bool
    """False when the gateway could not be reached; the group's deadline ends such a trajectory."""
    reward: float | None
    """None: this client gave it no reward."""
    calls: int
    unanswered: int
    """Calls whose reply the agent never saw; the gateway may have captured them."""
    policy_versions: tuple[str, ...]
    transcript: tuple[JsonObject, ...]
    failure: str | None = None
    """The error of a failed episode; None: it was completed."""
