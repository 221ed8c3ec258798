"""The report of an agreement in lines, for a terminal and for a page. Pure."""

from collections.abc import Iterator, Mapping

from claw_r1.consumers.rewards.measures.agreement import AgreementFigures, AgreementReport
from claw_r1.consumers.rewards.measures.rankings import GroupOrders
from claw_r1.consumers.text_table import table

FIGURES = ("agree", "kappa", "weighted_kappa", "alpha", "spearman", "bias")
VALUES_SHOWN, GROUPS_SHOWN = 10, 20


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
