import pytest

from claw_r1.gateway.errors import UpstreamBroken, UpstreamUnreachable
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.gateway.upstream.retry_budget import RetryBudget

SETTINGS = GatewaySettings(worker_wait_s=30, resends_max=2, retry_wait_s=0.001, retry_wait_max_s=0.001)


class Clock:
    """A clock that moves when it is told to."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("generation_s", [10, 60])
async def test_the_time_of_an_engine_that_breaks_is_no_waiting(generation_s: float) -> None:
    """However long engines worked on a call until they broke, it is sent again as often as it may."""
    budget = RetryBudget(SETTINGS, clock := Clock())
    for _ in range(SETTINGS.resends_max):
        budget.sent()
        clock.now_s += generation_s
        await budget.after(UpstreamBroken("broke"))
    assert budget.left_s(UpstreamBroken("broke")) == 30
    budget.sent()
    with pytest.raises(UpstreamBroken):
        await budget.after(UpstreamBroken("broke"))


async def test_the_time_of_an_engine_that_is_not_reached_is_waiting() -> None:
    """Or a call would wait for longer the slower its connections fail."""
    budget = RetryBudget(SETTINGS, clock := Clock())
    for _ in range(6):
        budget.sent()
        await budget.after(UpstreamUnreachable("no route"))
        clock.now_s += 5
    with pytest.raises(UpstreamUnreachable):
        await budget.after(UpstreamUnreachable("no route"))
