"""What is said of runs: curves in parts, two runs over equally many batches."""

from claw_r1.consumers.runs import summary
from claw_r1.datapool.runs import Run, runs_of
from tests.consumers.runs import observed


def run_of(rewards: list[float], run_id: str = "run", config: str = "{}") -> Run:
    events = [observed.started(run_id, config), *(observed.trained(n, r, run_id) for n, r in enumerate(rewards))]
    return runs_of(observed.records(events))[run_id]


def test_a_curve_is_summed_up_in_ten_parts_that_hold_every_batch_once() -> None:
    """23 batches: parts of 2 or 3, from 0 to 22; first, last and best means are of five batches."""
    curve = summary.curve(run_of([n / 100 for n in range(22)] + [0.0]))
    bounds = [part["batches"] for part in curve["parts"]]
    assert len(bounds) == 10
    assert [n for start, end in bounds for n in range(start, end + 1)] == list(range(23))
    assert {end - start + 1 for start, end in bounds} == {2, 3}
    assert [round(curve[name], 4) for name in ("first", "last", "best")] == [0.02, 0.156, 0.19]


def test_a_run_without_a_batch_has_no_curve() -> None:
    """Nothing is None, not 0."""
    run = run_of([])
    assert summary.curve(run) == {"first": None, "last": None, "best": None, "parts": []}
    assert summary.row(run, 0)["reward"] is None
    assert summary.compared(run, run_of([1.0], "other"), 0)["batches"] == 0


def test_two_runs_are_compared_over_equally_many_batches() -> None:
    """The longer one's later batches count for nothing; settings that name the run's own place are no difference."""
    left = run_of(
        [0.1] * 4, config='{"learning_rate": 0.1, "run_id": "a", "out_dir": "x", "spec": {"algorithm": "grpo"}}'
    )
    right = run_of(
        [0.2] * 4 + [1.0] * 9,
        "other",
        '{"learning_rate": 0.1, "run_id": "b", "spec": {"algorithm": "rloo"}, "seed": 1}',
    )
    pair = summary.compared(left, right, 0)
    assert pair["settings"] == {"seed": [None, 1], "spec.algorithm": ["grpo", "rloo"]}
    assert (pair["batches"], [round(mean, 9) for mean in pair["metrics"]["reward"]]) == (4, [0.1, 0.2])
    assert [part["batches"] for part in pair["reward"]] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert "grad_norm" not in pair["metrics"]


def test_shares_of_environments_add_up() -> None:
    """A batch without an environment has no metric of it, and its share there is 0; its reward is the mean where it was played."""
    both = {"env.a.share": 0.75, "env.b.share": 0.25, "env.b.reward": 1.0}
    batches = [both, {"env.a.share": 1.0}, both, {"env.a.share": 1.0}]
    events = [observed.started(), *(observed.trained(n, 0.0, turns_mean=1.0, **own) for n, own in enumerate(batches))]
    run = runs_of(observed.records(events))["run"]
    own = summary.episodes(run)["environments"]
    assert own == {"a": {"share": 0.875}, "b": {"reward": 1.0, "share": 0.125}}
    metrics = summary.compared(run, run, 0)["metrics"]
    assert [metrics[name] for name in ("env.a.share", "env.b.share", "env.b.reward")] == [
        [0.875] * 2,
        [0.125] * 2,
        [1.0] * 2,
    ]


def test_an_evaluation_lists_its_shares_in_order_of_k() -> None:
    """4 before 16, though the words sort otherwise."""
    assert list(summary.evaluation(observed.evaluated(3, 0.5, best=True))["pass_at"]) == ["1", "4", "16"]
