"""How often vLLM may be started again before the worker gives up; pure, the clock is an argument."""


class RestartBudget:
    """`restarts_max` restarts in any `window_s`."""

    def __init__(self, restarts_max: int, window_s: float) -> None:
        self._restarts_max = restarts_max
        self._window_s = window_s
        self._spent: list[float] = []

    def spend(self, now_s: float) -> bool:
        """Note one restart at `now_s`; False when it is one too many."""
        self._spent = [at for at in self._spent if now_s - at < self._window_s]
        self._spent.append(now_s)
        return len(self._spent) <= self._restarts_max
