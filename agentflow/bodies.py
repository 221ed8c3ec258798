"""Requests of an agent to the gateway, and what the gateway replies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from claw_r1.schemas.http import Channel

JsonObject = Mapping[str, Any]
"""A JSON object of somebody else's: a task, a message, an OpenAI body. Its shape is theirs, hence Any."""

TrajectoryOutcome = Literal["completed", "failed"]


@dataclass(frozen=True, slots=True)
class TrajectoryId:
    """Identity of one episode: the trajectory's id is unique within its group only."""

    trajectory_id: str
    group_id: str

    @classmethod
    def new(cls, group_id: str) -> "TrajectoryId":
        """A fresh member of the group."""
        return cls(trajectory_id=uuid4().hex, group_id=group_id)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group to open. The client chooses the id, so that opening it again after a lost
    answer is the same opening."""

    size: int
    channel: str = Channel.TRAIN
    run_id: str | None = None
    task: JsonObject | None = None
    deadline_s: float | None = None
    """After it the group is closed with the members that are complete."""
    admission: bool = True
    """False: never refused for staleness (evaluation)."""
    tags: Sequence[str] | None = None
    ordinal: int | None = None
    """Place of the task in its order; the group's id is then `claw_r1.schemas.http.ordered_group_id`."""
    group_id: str = field(default_factory=lambda: uuid4().hex)


@dataclass(frozen=True, slots=True)
class GroupOpen:
    """The group exists."""

    group_id: str


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Not now: the trainer has enough groups under way, or there is none yet."""

    seconds: float
    reason: str = ""
    """The gateway's word for it: `capacity`, `run_unknown`."""


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """The limits of one episode, its branches included; None: no limit."""

    seconds: float | None = None
    """From its start to the return of `run`."""
    tokens: int | None = None
    """Sampled, of all replies together."""
    calls: int | None = None


@dataclass(frozen=True, slots=True)
class TokenReply:
    """One model call by token ids, answered."""

    ids: list[int]
    """[n], as they were sampled; what ends the response is among them."""
    logprobs: list[float]
    """[n], of these ids under the policy that sampled them."""
    text: str
    """The text of the ids; without those that are no text, and never to be made ids of again."""
    finish_reason: str | None
    call_id: str | None
    """The id of the call, see `ChatReply.call_id`."""
    policy_version: str | None

    @property
    def completion_tokens(self) -> int:
        """n."""
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One model call, answered."""

    text: str
    """The text of the first choice; empty when nothing was."""
    message: dict[str, Any]
    """The first choice's message without its empty fields, or what says it in the protocol of the call, ready to be appended to
    the conversation."""
    finish_reason: str | None
    call_id: str | None
    """Identity of the captured call, for step rewards; None when something other than the gateway answered."""
    policy_version: str | None
    prompt_tokens: int
    completion_tokens: int
    raw: JsonObject
