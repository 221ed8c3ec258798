"""The frame of `make bench-trainer`: figures with targets, parts that break alone, and the loop in one process."""

from bench import report, trainer, trainer_staleness
from bench.in_process import batches_until
from bench.trainer_long_episodes import trained_share
from claw_r1.trainer.sections.objective import ObjectiveSettings


def test_the_table_says_what_is_met_and_what_is_missed() -> None:
    """Nested figures by dots; what begins with an underscore is not shown."""
    figures = {"tree_ratio": 2.5, "long_episodes": {"group": 0.0, "tokens": 0.5}, "_dates": {"x": "y"}}
    text = report.table(figures, trainer.TARGETS)
    assert "tree_ratio" in text
    assert ">= 2.4: met" in text
    assert ">= 0.9: MISSED" in text
    assert "_dates" not in text


def test_every_part_is_a_module_of_its_own() -> None:
    """A part that is not there is said to have failed, and the others are measured."""
    assert "failed" in report.measured("nonsense", "bench.trainer_nonsense")["nonsense"]
    modules = {path.stem.removeprefix("trainer_") for path in report.OUT.parent.glob("trainer_*.py")}
    assert modules >= set(trainer.LEARNING)


def test_an_episode_that_outlasts_the_bound_trains_by_its_young_tokens_alone() -> None:
    """The row `long_episodes`: none under `stale: group`, all under `tokens`, a twentieth of their tokens."""
    assert trained_share("group", 1) == (0.0, 0.0)
    assert trained_share("tokens", 1) == (1.0, 0.05)


def test_no_two_ways_of_the_staleness_bench_are_one_computation() -> None:
    """With one step per batch decoupled PPO is TIS; and what is compared differs in the correction alone."""
    ways = {name: ObjectiveSettings.model_validate(way) for name, way in trainer_staleness.WAYS.items()}
    steps = {name: way.minibatches * way.epochs for name, way in ways.items()}
    assert [name for name, way in ways.items() if way.correction == "decoupled" and steps[name] == 1] == []
    assert len({way.model_dump_json() for way in ways.values()}) == len(ways)
    assert set(trainer_staleness.COUNTERPARTS) == {name for name, way in ways.items() if way.correction != "none"}
    for name, other in trainer_staleness.COUNTERPARTS.items():
        assert ways[name].model_copy(update={"correction": "none"}) == ways[other]


def test_the_goal_is_a_mean_of_five() -> None:
    """The first batch at which it is reached, counted from 1."""
    assert batches_until([0.0, 1.0, 1.0, 1.0, 1.0, 1.0], 0.9) == 6
    assert batches_until([1.0] * 4, 0.9) is None
