"""`claw rewards agree A B`: how far raters agree: a scorer with people, with its own other version, people with each
other. From the facts of claw.rewards."""

from collections.abc import Iterator, Mapping

import msgspec

from claw_r1.claw.answers import Answer
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.show.log import log_for_reading
from claw_r1.claw.show.notice import notice
from claw_r1.claw.show.rendering import table
from claw_r1.consumers.rewards.measures.agreement import AgreementFigures, AgreementReport, agreement
from claw_r1.consumers.rewards.measures.orders import GroupOrders
from claw_r1.consumers.rewards.measures.ratings import ratings
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import readable
from claw_r1.schemas.topics import REWARDS

FIGURES = ("agree", "kappa", "weighted_kappa", "alpha", "spearman", "bias")
VALUES_SHOWN, GROUPS_SHOWN = 10, 20


def run_agree(left: str, right: str | None, *, resamples: int, seed: int, prefix: str) -> Iterator[Answer]:
    """Yields the report; exit code 1 when no subject has two ratings. right None: the raters of `left` among themselves. Raises CannotRun."""
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


def as_text(report: AgreementReport) -> Iterator[str]:
    """The report in lines."""
    whose = f"{report.left} with {report.right}" if report.left != report.right else f"{report.left} among themselves"
    figures = report.figures
    yield f"{whose}: {figures.subjects} subjects, {figures.observations} observations; rated by one only: {sum(report.unpaired)}"
    for name in FIGURES:
        low, high = report.intervals.get(name, (None, None))
        interval = "" if low is None else f"  95 % {_number(low)} to {_number(high)}"
        yield f"  {name:<15} {_number(getattr(figures, name)):>7}{interval}"
    yield from _orders(report.orders)
    if report.confusion and len(report.values) <= VALUES_SHOWN:
        yield f"  confusion ({report.left} down, {report.right} across)"
        head = ("", *(f"{value:g}" for value in report.values))
        rows = [
            (f"{value:g}", *map(str, counts)) for value, counts in zip(report.values, report.confusion, strict=True)
        ]
        yield from (f"    {line}" for line in table([head, *rows]))
    for title, parts in (("by version", report.by_version), ("by week", report.by_week), ("raters", report.raters)):
        yield from _parts(title, parts)


def _orders(order: GroupOrders) -> Iterator[str]:
    if not order.groups:
        return
    yield f"  pairs within {order.groups} groups: {order.pairs}, reversed: {order.pairs_reversed}"
    yield f"  groups with another best trajectory: {len(order.best_changed)}"
    yield from (f"    {group}" for group in order.best_changed[:GROUPS_SHOWN])
    if (rest := len(order.best_changed) - GROUPS_SHOWN) > 0:
        yield f"    and {rest} more (--json names all)"


def _parts(title: str, parts: Mapping[str, AgreementFigures]) -> Iterator[str]:
    if not parts:
        return
    head = (title, "subjects", *FIGURES)
    rows = [
        (name, str(each.subjects), *(_number(getattr(each, figure)) for figure in FIGURES))
        for name, each in parts.items()
    ]
    yield from (f"  {line}" for line in table([head, *rows]))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
