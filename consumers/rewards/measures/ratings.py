"""The standing ratings of raters, from the facts of claw.rewards. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from claw_r1.datapool.batch.spec import matches
from claw_r1.schemas.events import Event, RewardAssigned, ScoringFailed

RatedSubject = tuple[str, str, str | None, int | None]
"""Group, trajectory, call, step index."""


class Rating(NamedTuple):
    """The standing rating of one rater on one subject."""

    subject: RatedSubject
    rater: str
    value: float
    version: int | None
    """The version of a scorer."""
    at_us: int


def ratings(events: Iterable[Event], pattern: str) -> list[Rating]:
    """Returns the standing ratings in the slots that match, from all facts of claw.rewards. A slot without a value says
    nothing."""
    highest: dict[tuple[RatedSubject, str], RewardAssigned | ScoringFailed] = {}
    for event in events:
        if not isinstance(event, RewardAssigned | ScoringFailed):
            continue
        rater = f"{event.source}/{event.name}"
        if matches(pattern, rater):
            index = event.step_index if isinstance(event, RewardAssigned) and event.call_id is None else None
            place = (event.group_id, event.trajectory_id, event.call_id, index), rater
            highest[place] = max(highest.get(place, event), event, key=_rank)
    standing = sorted(
        highest.items(), key=lambda item: ([part or "" for part in item[0][0][:3]], item[0][0][3] or 0, item[0][1])
    )
    return [
        Rating(
            subject, rater, event.value, event.verdict.version if event.verdict else None, event.envelope.occurred_at_us
        )
        for (subject, rater), event in standing
        if isinstance(event, RewardAssigned) and event.value is not None
    ]


def _rank(event: RewardAssigned | ScoringFailed) -> tuple[bool, int, int, str]:
    """Ranks an event like the pool when it settles a slot."""
    own = event.envelope
    return event.verdict is not None, event.revision, own.occurred_at_us, own.event_id
