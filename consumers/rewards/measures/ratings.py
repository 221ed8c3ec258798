"""The standing ratings of raters, from the facts of claw.rewards. Pure."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from claw_r1.datapool.batch.spec import matches
from claw_r1.schemas.events import Event, RewardAssigned, ScoringFailed

RatedSubject = tuple[str, str, str | None, int | None]
"""Group, trajectory, call, step index."""
SCORER = re.compile(r"(?P<slots>.*/[^/]*)@(?P<version>\d+)(?:\.g(?P<generation>\d+))?")
"""`judge/style@2`: what version 2 of a scorer said; `judge/style@2.g1`: of that, what its generation 1 said."""


class Rating(NamedTuple):
    """The standing rating of one rater on one subject."""

    subject: RatedSubject
    rater: str
    value: float
    version: int | None
    """The version of a scorer."""
    at_us: int
    generation: int = 0

    @property
    def by(self) -> tuple[str, int | None, int]:
        """The rater, and of a scorer which of its versions and generations: two of them are held against each other."""
        return self.rater, self.version, self.generation


def ratings(events: Iterable[Event], pattern: str) -> list[Rating]:
    """Returns the standing ratings in the slots that match, from all facts of claw.rewards. A slot without a value says
    nothing. pattern: of slots; with `@VERSION` or `@VERSION.gN` behind it the last word of that version or generation."""
    scorer = SCORER.fullmatch(pattern)
    slots = pattern if scorer is None else scorer["slots"]
    highest: dict[tuple[RatedSubject, str], RewardAssigned | ScoringFailed] = {}
    for event in events:
        if not isinstance(event, RewardAssigned | ScoringFailed):
            continue
        rater = f"{event.source}/{event.name}"
        if matches(slots, rater) and (scorer is None or _is_of(event, scorer)):
            index = event.step_index if isinstance(event, RewardAssigned) and event.call_id is None else None
            place = (event.group_id, event.trajectory_id, event.call_id, index), rater
            highest[place] = max(highest.get(place, event), event, key=_rank)
    standing = sorted(
        highest.items(), key=lambda item: ([part or "" for part in item[0][0][:3]], item[0][0][3] or 0, item[0][1])
    )
    return [
        Rating(
            subject,
            rater,
            event.value,
            event.verdict.version if event.verdict else None,
            event.envelope.occurred_at_us,
            event.verdict.generation if event.verdict else 0,
        )
        for (subject, rater), event in standing
        if isinstance(event, RewardAssigned) and event.value is not None
    ]


def _is_of(event: RewardAssigned | ScoringFailed, scorer: re.Match[str]) -> bool:
    verdict, generation = event.verdict, scorer["generation"]
    return (
        verdict is not None
        and verdict.version == int(scorer["version"])
        and generation in (None, str(verdict.generation))
    )


def _rank(event: RewardAssigned | ScoringFailed) -> tuple[bool, int, int, str]:
    """Ranks an event like the pool when it settles a slot."""
    own = event.envelope
    return event.verdict is not None, event.revision, own.occurred_at_us, own.event_id
