"""What scorers did, and what it cost."""

from claw_r1.consumers.rewards.measures.totals import SlotTotals
from claw_r1.schemas.events import VerdictKept
from tests import facts


def verdict(name: str, at_us: int, failed: str | None = None) -> VerdictKept:
    return VerdictKept(
        envelope=facts.envelope(at_us=at_us),
        verdict_id=name,
        source="judge",
        name="style",
        version=1,
        scope="call",
        digest="",
        failed=failed,
        tokens=10,
        seconds=0.5,
        price=0.25,
    )


def test_a_copy_of_a_verdict_cost_nothing() -> None:
    """A log of more partitions has several, each with the first one's time; equal content that was judged twice has two times."""
    totals = SlotTotals()
    for each in (
        verdict("a", 1),
        verdict("a", 1),
        verdict("a", 2),
        verdict("b", 1, "refused"),
        verdict("b", 1, "refused"),
    ):
        totals.add(each)
    assert (len(totals.verdicts), len(totals.failed)) == (2, 1)
    assert (totals.tokens, totals.seconds, totals.price) == (30, 1.5, 0.75)
