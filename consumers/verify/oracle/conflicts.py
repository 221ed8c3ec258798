"""The choice of the fact that counts among several about one thing, and the content of a
record about all of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from claw_r1.consumers.verify.oracle.soundness import PooledFact
from claw_r1.schemas.events import (
    CallCaptured,
    GroupClosed,
    GroupEvicted,
    GroupOpened,
    TrajectoryAbandoned,
    TrajectoryCompleted,
    TrajectoryEvicted,
    TrajectoryStarted,
)

F = TypeVar("F", bound=PooledFact)
FactRank = tuple[Any, ...]  # values of fields, whose types differ, made comparable by `signed`

CONTENT: Mapping[type[PooledFact], tuple[str, ...]] = {
    GroupOpened: ("ordinal", "expected_size", "task", "deadline_us", "agent", "tags"),
    GroupClosed: ("members",),
    TrajectoryStarted: ("task", "tags", "metadata", "idle_s"),
    TrajectoryCompleted: ("calls", "rewards", "reward"),
    TrajectoryAbandoned: ("reason",),
    TrajectoryEvicted: ("reason",),
    GroupEvicted: ("reason",),
}
"""The fields that a record takes from its winning fact, in the order in which it decides between facts of one event
id."""
NO_SIGN = (TrajectoryAbandoned, GroupClosed, TrajectoryEvicted, GroupEvicted)
"""Facts that are decided about others, and no sign that somebody still works."""


def of_kind(facts: Iterable[object], kind: type[F]) -> list[F]:
    return [fact for fact in facts if isinstance(fact, kind)]


def newest(facts: Sequence[F]) -> F | None:
    """Returns the newest fact of one kind: by the highest revision, then the latest time, then the highest
    event id, then the last in order of content."""
    return max(facts, key=lambda fact: (revision_of(fact), *_moment(fact), _content(fact)), default=None)


def revision_of(fact: PooledFact) -> int:
    """0 of those that have none."""
    revision: int = getattr(fact, "revision", 0)
    return revision


def signed(value: object) -> FactRank:
    """Makes values comparable: nothing before something, False before True, -0.0 before 0.0."""
    return () if value is None else (value, not str(value).startswith("-"))


def sign_of_life(facts: Iterable[PooledFact]) -> tuple[int, str]:
    """(time in microseconds, event id) of the latest sign; none is before 1970."""
    return max([(0, ""), *(_moment(fact) for fact in facts if not isinstance(fact, NO_SIGN))])


def channel_of(facts: Iterable[PooledFact]) -> str:
    """`val` wins, then a channel of the operator's, the first by name, then `train`."""
    names = {str(channel) for fact in facts if (channel := getattr(fact, "channel", ""))}
    others = sorted(names - {"val", "train"})
    return "val" if "val" in names else others[0] if others else "train" if names else ""


def calls_run_id_of(facts: Iterable[PooledFact]) -> str | None:
    """Returns the run of the captured calls, the first by name; no other fact decides it."""
    runs = {fact.envelope.run_id for fact in facts if isinstance(fact, CallCaptured)}
    return min((run for run in runs if run is not None), default=None)


def run_ids(fact: GroupOpened | TrajectoryStarted | None, facts: Iterable[PooledFact], word: str) -> dict[str, Any]:
    """Fields of a record, by name. fact: its opening or registration, named by `word`; facts: all."""
    of_calls, named = calls_run_id_of(facts), fact.envelope.run_id if fact is not None else None
    return {"run_id": of_calls if named is None else named, "calls_run_id": of_calls, f"{word}_run_id": named}


def content_of(fact: PooledFact | None) -> dict[str, Any]:  # fields of a record, by name
    """Returns the fields that a record takes from its winning fact; without one, the defaults of the record hold."""
    return {} if fact is None else {name: getattr(fact, name) for name in CONTENT[type(fact)]}


def _moment(fact: PooledFact) -> tuple[int, str]:
    return fact.envelope.occurred_at_us, fact.envelope.event_id


def _content(fact: PooledFact) -> list[FactRank]:
    values = list(content_of(fact).values())
    if isinstance(fact, GroupOpened):
        values.insert(0, fact.envelope.run_id)
    if isinstance(fact, TrajectoryStarted):
        values.append(fact.envelope.run_id)
    return [signed(tuple(sorted(set(value))) if isinstance(fact, GroupClosed) else value) for value in values]
