"""The cost of scoring the history again. Reads the backfill's records, without a request."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from statistics import fmean

from claw_r1.consumers.rewards.app import source_of
from claw_r1.consumers.rewards.budget import guessed_tokens, is_paid
from claw_r1.consumers.rewards.config import ScoredSlot
from claw_r1.consumers.rewards.rescoring.backfill import BackfillRange, Holds
from claw_r1.consumers.rewards.scoring import SubjectSource, verdict_id
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.subject import Subject, Unjudgeable
from claw_r1.eventlog.errors import Retryable
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.reader import read_topics, stream_ranges
from claw_r1.eventlog.records import readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import VerdictKept
from claw_r1.schemas.topics import VERDICTS

RECORDS_AT_ONCE = 500
SAMPLE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The forecast of one backfill."""

    records: int
    """Offsets that it would read."""
    subjects: int
    verdicts: int
    """Subjects of content that is not kept yet in this generation, equal ones of a partition once."""
    tokens: int
    tokens_per_verdict: float
    basis: str
    """The basis of the token estimate."""
    price: float | None


def forecast(
    settings: LogSettings,
    slot: ScoredSlot,
    limits: RewardsSettings,
    span: BackfillRange,
    *,
    holds: Holds = lambda _: True,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Forecast:
    """slot: from `slot_again`. Raises LogError."""
    kept, costs = _kept(settings, slot)
    subjects, fresh, sizes = 0, set[tuple[int, str]](), list[int]()
    with closing(source_of(KafkaLog(settings), slot, limits)) as source:
        for subject in filter(holds, _subjects(settings, source, span, progress)):
            subjects += 1
            place = (subject.partition, verdict_id(slot, subject.digest))
            if place in kept or place in fresh:
                continue
            fresh.add(place)
            if not costs and is_paid(slot) and len(sizes) < SAMPLE:
                with suppress(Unjudgeable):
                    sizes.append(guessed_tokens(slot, subject.assemble()))
    each, basis = _estimate(slot, costs, sizes)
    tokens = round(each * len(fresh))
    price = slot.scorer.price_per_million
    return Forecast(
        records=span.records,
        subjects=subjects,
        verdicts=len(fresh),
        tokens=tokens,
        tokens_per_verdict=round(each, 1),
        basis=basis,
        price=None if price is None else price * tokens / 1e6,
    )


def _estimate(slot: ScoredSlot, costs: list[int], sizes: list[int]) -> tuple[float, str]:
    if costs:
        return fmean(costs), f"mean of {len(costs)} kept verdicts of {slot.name}"
    if not is_paid(slot):
        return 0.0, f"{slot.scorer.use.partition(':')[0]} costs no tokens"
    votes = int(getattr(slot.scorer, "votes", 1))
    about = (
        f"a quarter of the characters of {len(sizes)} subjects, {votes} votes; the rubric and the answers are not in it"
    )
    return (fmean(sizes) if sizes else 0.0), about


def _kept(settings: LogSettings, slot: ScoredSlot) -> tuple[set[tuple[int, str]], list[int]]:
    """Places of this generation's verdicts; what verdicts of any version that were paid cost."""
    scorer = slot.scorer
    places, costs = set[tuple[int, str]](), list[int]()
    for record in read_topics(settings, [VERDICTS]):
        for event in readable([record]):
            if isinstance(event, VerdictKept) and (event.source, event.name) == (scorer.source, scorer.name):
                if (event.version, event.generation) == (scorer.version, slot.generation):
                    places.add((record.partition, event.verdict_id))
                if event.tokens and event.failed is None:
                    costs.append(event.tokens)
    return places, costs


def _subjects(
    settings: LogSettings, source: SubjectSource, span: BackfillRange, progress: Callable[[int, int], None]
) -> Iterator[Subject]:
    """Yields the subjects of the range, in any order."""
    places = {place: (start, span.ends[place]) for place, start in span.starts.items() if start < span.ends[place]}
    for read, record in enumerate(stream_ranges(settings, places), 1):
        source.add(record)
        if read % RECORDS_AT_ONCE == 0:
            progress(read, span.records)
            yield from _take(source)
    yield from _take(source)


def _take(source: SubjectSource) -> Iterable[Subject]:
    while True:  # a source gives up waiting after a few times
        with suppress(Retryable):
            return source.take()
