"""`fold`: one fact into the state of its group. A function of (state, fact, position), commutative and idempotent."""

from datapool.state import GroupState
from schemas.events import Event, FactPosition


def fold(state: GroupState | None, fact: Event, position: FactPosition) -> GroupState:
    """The group after one more fact. Raises UnusableFact when the fact contradicts its own contract."""
    raise NotImplementedError
