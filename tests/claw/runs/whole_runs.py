"""Runs as the log tells them, for what is shown of them."""

from claw_r1.datapool.runs import Run, runs_of
from tests.consumers.runs import observed

NOW_US = 400 * observed.SECOND_US


def run_of(run_id: str = "run", number: int = 30, config: str = '{"spec": {"seed": 1}}') -> Run:
    events = [observed.started(run_id, config), *(observed.trained(n, n / 30, run_id) for n in range(number))]
    run = runs_of(observed.records([*events, observed.ended(number, run_id)]))[run_id]
    for event in (observed.weights(0, "file:///v0"), observed.evaluated(20, 0.7, best=True, uri="file:///best")):
        run.take(event)
    return run


EPISODES = {"response_tokens_mean": 40.0, "truncated_share": 0.25, "turns_mean": 2.0, "failed_share": 0.5}
ENVIRONMENTS = {"env.math.reward": 0.75, "env.math.share": 1.0, "env.v1.2.reward": 0.5, "slot.rules/exact": 0.5}


def went(metrics: dict[str, float], run_id: str = "run") -> Run:
    batches = [observed.trained(n, n / 30, run_id, **metrics) for n in range(6)]
    return runs_of(observed.records([observed.started(run_id), *batches]))[run_id]
