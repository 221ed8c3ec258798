"""`claw rewards agree A B`: how far raters agree: a scorer with people, with its own other version, people with each
other. From the facts of claw.rewards."""

from collections.abc import Iterator

import msgspec

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.notice import notice
from claw_r1.consumers.rewards.measures.agreement import agreement
from claw_r1.consumers.rewards.measures.ratings import ratings
from claw_r1.consumers.rewards.measures.report import as_text
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import readable
from claw_r1.schemas.topics import REWARDS


def run_agree(left: str, right: str | None, *, resamples: int, seed: int, prefix: str) -> Iterator[Answer]:
    """Yields the report; exit code 1 when no subject has two ratings. right None: the raters of `left` among
    themselves. Raises CannotRun."""
    for pattern in (left, right or left):
        if "/" not in pattern:
            raise CannotRun(f"{pattern}: raters are slots, SOURCE/NAME, or a pattern of them, quoted: 'human:*/style'")
    with log_for_reading(prefix) as settings:
        events = list(readable(read_topics(settings, [REWARDS])))
    sides = ratings(events, left), None if right is None else ratings(events, right)
    report = agreement(*sides, names=(left, right or left), resamples=resamples, seed=seed)
    yield Answer(msgspec.to_builtins(report), as_text(report), 0 if report.figures.subjects else 1)
    if not report.figures.subjects:
        notice(f"no subject was rated by two: {left} rated {len({one.subject for one in sides[0]})} subjects")
