"""`claw rewards stats`: every scorer that ever kept a verdict, from the topics alone."""

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.consumers.rewards.measures.totals import totals
from claw_r1.eventlog.kafka.admin import as_on_broker
from claw_r1.schemas.json_values import JsonDict


def run_stats(*, prefix: str) -> Answer:
    """Gives one entry per scorer."""
    with log_for_reading(prefix) as settings:
        answer = totals(as_on_broker(settings))
    return Answer(answer, as_lines(answer))


def as_lines(answer: JsonDict) -> list[str]:
    """A table; what nobody knows is a dash."""
    if not answer:
        return ["no scorer has kept a verdict; `claw rewards run` starts those of rewards.yaml"]
    lines = [
        f"{'scorer':30} {'verdicts':>9} {'failed':>7} {'cached':>7} {'lag s':>7} {'tokens':>10} {'seconds':>9} price"
    ]
    for name, of_slot in answer.items():
        cost = of_slot["cost"]
        lag = "-" if of_slot["lag_s"] is None else f"{of_slot['lag_s']:.1f}"
        price = "-" if cost["price"] is None else f"{cost['price']:.4f}"
        lines.append(
            f"{name:30} {of_slot['verdicts']:9} {of_slot['failed']:7} {of_slot['cached']:7} {lag:>7} "
            f"{cost['tokens']:10} {cost['seconds']:9.1f} {price}"
        )
    return lines
