"""The subject of one verdict, before judgement: its target, its content's digest, and how its text is
assembled.

Invariant: digest, time and attempt are functions of the subject's facts, never of the time or order in which
they were read.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec import Struct

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.schemas.events import CallCaptured
from claw_r1.schemas.keys import step_key

ATTEMPTS = {"failed": 1, "completed": 2}
"""The attempt of a trajectory that is over; of two words on its end the fold keeps the higher,
and so does its slot."""
RANKS = {**ATTEMPTS, "continued": 3}
"""And of a turn that another call is written against: it stays so, whatever the end."""
ATTEMPTS_MAX = 16


def attempt_of(status: str, *, registered: bool, declared: bool) -> int:
    """Returns how much is known of a subject: its end, whether it was registered, and whether its group was
    declared. < ATTEMPTS_MAX.

    A verdict on more facts outranks one on fewer, in any order of arrival.
    """
    return 4 * RANKS.get(status, 0) + 2 * registered + declared


class Unjudgeable(ConsumerError):
    """The subject cannot be put together. `reason`: a stable word, as in the table of docs/rewards.md."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class Target(Struct, frozen=True):
    """The target of one value of a verdict."""

    trajectory_id: str
    call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One subject of a slot."""

    partition: int
    """The partition of its facts, its verdict and its rewards."""
    group_id: str
    trajectory_id: str = ""
    call_id: str | None = None
    targets: tuple[Target, ...]
    """The targets, one for each value."""
    digest: str
    """sha256 hex of the content that is judged."""
    occurred_at_us: int
    attempt: int = 0
    """`attempt_of`."""
    run_id: str | None = None
    slots: frozenset[str] = frozenset()
    """Event ids of the rewards that its row holds already."""
    traceparents: tuple[str | None, ...] = ()
    """The trace contexts of its calls."""
    assemble: Callable[[], Judged]
    """Puts the text together, which no cached verdict needs. Raises Unjudgeable."""

    @property
    def label(self) -> str:
        """`group/trajectory[/call]`, each part percent-encoded."""
        return step_key(self.group_id, self.trajectory_id, self.call_id or "").decode().rstrip("/")


def digest_of(parts: Iterable[str | bytes | None]) -> str:
    """sha256 hex over parts, each with its length in front, so that no two sequences run into the same bytes."""
    digest = hashlib.sha256()
    for part in parts:
        data = b"" if part is None else part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(b"-" if part is None else b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def call_content(call: CallCaptured) -> Sequence[str | bytes | None]:
    """Returns the content of one call that may affect a scorer's opinion, beside the task: its request, the
    sample, its end.

    A reply's body has ids and times of its own: the sampled ids, if known, replace it. Log-probabilities are
    excluded: equal text of two policies is equal content.
    """
    reply = call.response_ids or call.response_body
    request = call.request.full_digest
    return (call.protocol, request, reply, str(call.choice), call.finish_reason, str(len(call.tags)), *call.tags)
