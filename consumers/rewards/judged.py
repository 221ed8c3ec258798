"""The view that a scorer has of its subject: plain values, put together once for all kinds. They cross process borders
by msgpack.

Ids are there to find it again and no content: a pure scorer, which is asked once for equal content, says nothing of them.
"""

from typing import Any, Literal

from msgspec import Struct

Scope = Literal["call", "next", "steps", "trajectory", "group"]
JudgedMessage = dict[str, Any]
"""A message in the form of OpenAI's chat (`claw_r1.datapool.view.conversations`): role, content, tool_calls, …; it is
the client's and the engine's."""


class JudgedCall(Struct, frozen=True, kw_only=True):
    """One call of the model."""

    call_id: str
    messages: tuple[JudgedMessage, ...] = ()
    """The whole conversation before the reply. Empty where its text is lost."""
    reply: JudgedMessage | None = None
    """The assistant's message; None where the reply has no text."""
    after: tuple[JudgedMessage, ...] | None = None
    """The messages between this reply and the next: results of tools, the user's answer. None: nothing."""
    tools: tuple[dict[str, Any], ...] = ()
    """The tools that were offered, in chat's format."""
    finish_reason: str | None = None
    tags: tuple[str, ...] = ()
    logprob_mean: float | None = None
    """The mean log-probability of the sampled tokens, in nats. None for a pure scorer: equal words of two policies are
    equal content."""


class Judged(Struct, frozen=True, kw_only=True):
    """One subject. Of scopes call and next `calls` holds one; of a group the calls are with its members."""

    scope: Scope
    group_id: str
    trajectory_id: str = ""
    """The trajectory's id; of a group: empty."""
    calls: tuple[JudgedCall, ...] = ()
    """In order; side calls left out."""
    conversation: tuple[JudgedMessage, ...] = ()
    """The trajectory as one conversation, up to and with the last of `calls`."""
    members: tuple["Judged", ...] = ()
    """The members of a group that are over, by trajectory_id, each of scope trajectory."""
    task: Any = None
    """JSON: what the trajectory, else its group, was registered with."""
    metadata: Any = None
    """JSON: of the trajectory's registration."""
    tags: tuple[str, ...] = ()
    """The tags of the trajectory and its group."""
    status: str = "open"
    """`TrajectoryRecord.status`."""

    @property
    def answers(self) -> int:
        """The number of values that a verdict on it has."""
        return len(self.calls) if self.scope == "steps" else len(self.members) if self.scope == "group" else 1
