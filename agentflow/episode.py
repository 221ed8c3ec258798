"""One episode as its flow sees it: a task, a model to talk to, rewards to assign.

Invariant: `calls` and `rewards` count what the gateway acknowledged, so that a completion which carries them makes the
trajectory ready for training only when all of it has arrived, and no reply that this episode never saw.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentflow.bodies import ChatReply, JsonObject, TrajectoryId, TrajectoryOutcome
from agentflow.client import GatewayClient


class Episode:
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
    ) -> None:
        """`sampling` (fields of OpenAI's body, hence Any) overrides what the flow asks for: evaluation is greedy.

        `on_version` gets the label of the versions that sampled a reply, as soon as it is there.
        """
        self.task = task
        """Equal for all members of the group."""
        self.seed = seed
        """The member's own, for a flow that draws at random."""
        self.trajectory = trajectory
        self.call_ids: list[str] = []
        """Of the replies, in order: each is captured."""
        self.policy_versions: set[str] = set()
        self.keeps_count = True
        """False: the calls are made elsewhere, and those that stand before the completion in the log belong to it."""
        self.transcript: list[JsonObject] = []
        """The conversation as of the last call, its reply included."""
        self._client = client
        self._sampling = dict(sampling or {})
        self._on_version = on_version
        self._outcome: float | None = None
        self._assigned: dict[tuple[str | None, str], list[float]] = {}

    @property
    def outcome(self) -> float | None:
        """Reward of the episode as a whole, sent with its completion: a slot of its own (`agent/completion`), beside what
        `reward` assigns."""
        return self._outcome

    @outcome.setter
    def outcome(self, value: float) -> None:
        self._outcome = _finite(value)

    async def chat(self, messages: Sequence[JsonObject], **sampling: Any) -> ChatReply:
        """One model call with the whole conversation so far. `sampling`: any field of OpenAI's chat body."""
        reply = await self._client.chat(self.trajectory, messages, **{**sampling, **self._sampling})
        self.transcript = [*messages, reply.message]
        self._note_call(reply.call_id, reply.policy_version)
        return reply

    def _note_call(self, call_id: str | None, policy_version: str | None) -> None:
        if call_id is not None:
            self.call_ids.append(call_id)
        if policy_version is not None:
            self.policy_versions.add(policy_version)
            self._on_version(policy_version)

    async def reward(self, value: float, *, name: str | None = None, call_id: str | None = None) -> None:
        """Assign a reward now, to a call (its `call_id`) or to the episode.

        Rewards of different slots (subject and name) add up, `outcome` among them; within a slot the later one replaces
        the earlier.
        """
        slot = (call_id, name or ("outcome" if call_id is None else "step"))
        values, finite = self._assigned.setdefault(slot, []), _finite(value)
        await self._client.reward(self.trajectory, finite, name=slot[1], call_id=call_id, revision=len(values))
        values.append(finite)

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
        """Where a client of OpenAI's API makes calls of this episode."""
        return self._client.base_url(self.trajectory)

    @property
    def sampling(self) -> JsonObject:
        """What the runner asks of every call of this episode, whatever the flow asks for."""
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
    def earned(self) -> float:
        """The return: all rewards assigned so far and the outcome."""
        return sum(values[-1] for values in self._assigned.values() if values) + (self.outcome or 0.0)

    async def complete(self, status: TrajectoryOutcome) -> None:
        """End the trajectory; the runner does this. A failed episode has no outcome.

        Of two completions one counts as a whole: the later one, but `completed` before `failed`.
        """
        if status == "failed":
            self._outcome = None
        calls = self.calls if self.keeps_count else None
        await self._client.complete(self.trajectory, self.outcome, calls=calls, rewards=self.rewards, status=status)


def _finite(value: float) -> float:
    """As a plain float (a number of numpy's is none); raises ValueError for what no trainer can average."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a reward must be finite, not {number}")
    return number


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """An episode that is over."""

    trajectory: TrajectoryId
    status: TrajectoryOutcome
    reported: bool
    """False when the gateway could not be reached; the group's deadline ends such a trajectory."""
    reward: float
    calls: int
    policy_versions: tuple[str, ...]
    transcript: tuple[JsonObject, ...]
