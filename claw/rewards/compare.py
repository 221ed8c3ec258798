"""`claw rewards compare A@1 A@2`: two versions of a scorer beside each other, from the facts. It writes nothing."""

from dataclasses import asdict

from claw_r1.claw.answers import Answer
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.show.log import log_for_reading
from claw_r1.consumers.rewards.measures.comparison import Distribution, ScoredBy, VersionComparison, compare, scores_of
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import readable
from claw_r1.schemas.topics import REWARDS

GROUPS_SHOWN = 20


def run_compare(a: str, b: str, threshold: float | None, *, prefix: str) -> Answer:
    """Compares them; exit code 1 where no subject was judged by both. Raises CannotRun."""
    try:
        sides = ScoredBy.parse(a), ScoredBy.parse(b)
    except ValueError as error:
        raise CannotRun(str(error)) from error
    with log_for_reading(prefix) as settings:
        events = list(readable(read_topics(settings, [REWARDS])))
    (first, failed_a), (second, failed_b) = (scores_of(events, side) for side in sides)
    result = compare(first, second, threshold)
    lines = [*_side(a, result.a, failed_a), *_side(b, result.b, failed_b), *_both(result)]
    answer = {**asdict(result), "names": [a, b], "failed": [failed_a, failed_b]}
    return Answer(answer, lines, 0 if result.both else 1)


def _side(name: str, values: Distribution, failed: int) -> list[str]:
    if values.mean is None:
        return [f"{name}: no reward, {failed} failed"]
    spread = "-" if values.sd is None else f"{values.sd:.4g}"
    cuts = " ".join(f"{cut}={value:.4g}" for cut, value in values.quantiles.items())
    return [f"{name}: n={values.n} failed={failed} mean={values.mean:.4g} sd={spread}", f"  {cuts}"]


def _both(result: VersionComparison) -> list[str]:
    if not result.both:
        return ["no subject was judged by both"]
    correlations = [
        f"{word}={'-' if value is None else f'{value:.4f}'}"
        for word, value in (("pearson", result.pearson), ("spearman", result.spearman))
    ]
    lines = [
        f"judged by both: {result.both}, mean change {result.mean_change:+.4g}, {' '.join(correlations)}",
        f"flips over {result.threshold:g}: {result.flips}",
        f"pairs within groups: {result.pairs}, reversed: {result.pairs_reversed}",
        f"groups: {result.groups}, with another best member: {len(result.best_changed)}",
    ]
    listed = result.best_changed[:GROUPS_SHOWN]
    rest = len(result.best_changed) - len(listed)
    return [*lines, *(f"  {group}" for group in listed), *([f"  and {rest} more (--json names all)"] if rest else [])]
