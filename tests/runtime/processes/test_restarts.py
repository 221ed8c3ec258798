"""Whether a death is answered by a restart, and after which wait."""

from claw_r1.runtime.processes.restarts import UNLIMITED, Deaths, RestartBudget


def test_waits_double_up_to_a_ceiling() -> None:
    """Each death within the window makes the wait before the next restart twice as long."""
    deaths = Deaths(RestartBudget(restarts_max=3, window_s=100, delay_s=1, delay_max_s=3))
    assert [deaths.restart_delay_s(10.0) for _ in range(3)] == [1, 2, 3]


def test_one_death_more_than_the_budget_is_the_end_and_old_deaths_are_forgiven() -> None:
    """Only deaths within the sliding window count."""
    deaths = Deaths(RestartBudget(restarts_max=2, window_s=10, delay_s=0))
    assert [deaths.restart_delay_s(time_s) for time_s in (0, 1, 2)] == [0, 0, None]
    assert deaths.restart_delay_s(13) == 0


def test_without_a_limit_nobody_gives_up() -> None:
    """Thousands of deaths are still answered, after the longest wait."""
    deaths = Deaths(RestartBudget(UNLIMITED, window_s=1e9, delay_s=0.1, delay_max_s=5))
    assert [deaths.restart_delay_s(float(second)) for second in range(3000)][-1] == 5
