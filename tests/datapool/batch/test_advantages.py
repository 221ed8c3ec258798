"""Advantages against reference values that were computed with the formulas of their papers and of verl."""

from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from claw_r1.datapool.batch.advantages import ESTIMATORS, CallState, Return, dr_grpo, grpo, rloo
from claw_r1.datapool.batch.spec import PRESETS, BatchSpec
from claw_r1.trainer.algorithms.losses import LOSSES
from claw_r1.trainer.algorithms.norms import NORMS
from claw_r1.trainer.compose import objective_of
from claw_r1.trainer.settings import TrainerSettings

PAGE = Path(__file__).parents[3] / "docs" / "batches.md"


@pytest.mark.parametrize(
    ("function", "returns", "expected"),
    [
        (grpo, [1, 0, 0, 1], [0.865875, -0.865875, -0.865875, 0.865875]),
        (grpo, [0.2, 0.5, 1, 0], [-0.517202, 0.172401, 1.321739, -0.976938]),
        (grpo, [1, 1, 1, 1], [0, 0, 0, 0]),
        (grpo, [0.1, 0.1, 0.1], [0, 0, 0]),
        (dr_grpo, [1, 0, 0, 1], [0.5, -0.5, -0.5, 0.5]),
        (dr_grpo, [0.2, 0.5, 1, 0], [-0.225, 0.075, 0.575, -0.425]),
        (rloo, [1, 0, 0, 1], [0.666667, -0.666667, -0.666667, 0.666667]),
        (rloo, [0.2, 0.5, 1, 0], [-0.3, 0.1, 0.766667, -0.566667]),
    ],
)
def test_reference_values(function, returns, expected):
    """Sample deviation (ddof 1) and epsilon 1e-4: the population deviation would give +-0.9998 in the first case."""
    assert function(returns) == pytest.approx(expected, abs=1e-6)


def wholes(algorithm, groups):
    made = ESTIMATORS[algorithm].function([[Return(value) for value in group] for group in groups])
    return [[one.whole for one in group] for group in made]


@pytest.mark.parametrize("algorithm", ["grpo", "dr_grpo", "rloo", "reinforce_pp_baseline", "step_grpo"])
@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, 1 / 3])
def test_equal_returns_have_no_advantage_at_all(algorithm, value):
    """Exactly 0, however their mean is rounded and whatever stands beside them: the share of advantages counts what is not 0."""
    for size in range(2, 12):
        assert wholes(algorithm, [[value] * size, [0.1, 0.2, 0.7]])[0] == [0.0] * size
        assert wholes(algorithm, [[value] * size, [0.6] * 3]) == [[0.0] * size, [0.0] * 3]


@pytest.mark.parametrize("algorithm", ["grpo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "step_grpo"])
def test_rounding_is_no_difference(algorithm):
    """The same rewards, added up in another order, teach nothing; a difference that somebody gave does, however small all are."""
    rounded = [0.1 + 0.2 + 0.3, 0.6, 0.1 + (0.2 + 0.3)]
    assert len({*rounded}) == 2
    for scale in (1.0, -1.0, 1e-3, 1e12):
        assert wholes(algorithm, [[scale * value for value in rounded]]) == [[0.0] * 3]
        (made,) = wholes(algorithm, [[scale * value for value in (0.6, 0.6, 0.600001)]])
        assert 0.0 not in made
    assert wholes(algorithm, [[0.1 + 0.2 - 0.3, 0.0, 0.3 - 0.2 - 0.1]]) == [[0.0] * 3]


def test_reinforce_pp_normalises_over_the_batch_and_not_over_groups():
    """Groups are only a way to write the batch down: the reference row of GRPO comes back however it is cut."""
    cut = wholes("reinforce_pp", [[0.2, 0.5], [1], [0]])
    assert [value for group in cut for value in group] == pytest.approx(
        [-0.517202, 0.172401, 1.321739, -0.976938], abs=1e-6
    )
    assert wholes("grpo", [[0.2, 0.5], [1], [0]])[1:] == [[0.0], [0.0]]


def test_reinforce_pp_with_baseline_takes_the_groups_mean_and_the_batchs_deviation():
    """R 1, 0 and 5, 5, 2: less their means .5, -.5, 1, 1, -2, whose mean is 0 and deviation 1.274755; no group divides by its own."""
    made = wholes("reinforce_pp_baseline", [[1, 0], [5, 5, 2]])
    assert made[0] == pytest.approx([0.392201, -0.392201], abs=1e-6)
    assert made[1] == pytest.approx([0.784403, 0.784403, -1.568806], abs=1e-6)
    assert wholes("reinforce_pp_baseline", [[3, 3], [7, 7]]) == [[0, 0], [0, 0]]


def test_gae_leaves_advantages_to_the_critic():
    """0 for all, whatever was earned."""
    assert wholes("gae", [[1, 0], [5]]) == [[0, 0], [0]]
    assert ESTIMATORS["gae"].critic


def in_line(*rewards, outcome=0.0, name=""):
    """A trajectory of calls that go on with each other, each asked what nobody else was asked."""
    states = tuple(CallState(f"{name}{rewards}{k}", "", k) for k in range(len(rewards)))
    return Return(sum(rewards) + outcome, rewards, outcome, states)


def test_step_grpo_compares_returns_to_go_of_equal_depths():
    """The k-th calls of a line against each other; who alone has a k-th call has advantage 0."""
    (made,) = ESTIMATORS["step_grpo"].function([[in_line(0.0, 1.0, outcome=1.0), in_line(0.5, 0.0), in_line(0, 0, 0)]])
    first, second = grpo([2.0, 0.5, 0.0]), grpo([2.0, 0.0, 0.0])
    assert [one.steps for one in made] == [
        pytest.approx((first[0], second[0])),
        pytest.approx((first[1], second[1])),
        pytest.approx((first[2], second[2], 0.0)),
    ]


def test_step_grpo_compares_calls_of_equal_prompts_before_those_of_equal_depth():
    """Two trajectories come to one state at other depths: those two calls against each other, the third against its depth."""
    anchored, alone = CallState("same", "", 1), CallState("other", "", 1)
    begin = CallState("begin", "", 0)
    group = [
        Return(1.0, (0.0, 1.0), 0.0, (begin, anchored)),
        Return(0.0, (0.0, 0.0, 0.0), 0.0, (begin, CallState("detour", "", 1), anchored._replace(depth=2))),
        Return(0.5, (0.0, 0.5), 0.0, (begin, alone)),
    ]
    (made,) = ESTIMATORS["step_grpo"].function([group])
    first, of_state, of_depth = grpo([1.0, 0.0, 0.5]), grpo([1.0, 0.0]), grpo([1.0, 0.0, 0.5])
    assert made[0].steps == pytest.approx((first[0], of_state[0]))
    assert made[1].steps == pytest.approx((first[1], of_depth[1], of_state[1]))
    assert made[2].steps == pytest.approx((first[2], of_depth[2]))


def test_step_grpo_compares_nothing_with_a_call_that_was_aborted():
    """Its advantage is 0, and its reward still counts for the calls before it."""
    broken = in_line(0.0, 2.0)
    broken = Return(2.0, broken.steps, 0.0, (broken.states[0], None))
    (made,) = ESTIMATORS["step_grpo"].function([[broken, in_line(0.0, 0.0), in_line(0.0, 1.0)]])
    assert made[0].steps == pytest.approx((grpo([2.0, 0.0, 1.0])[0], 0.0))
    assert made[2].steps == pytest.approx((grpo([2.0, 0.0, 1.0])[2], grpo([0.0, 1.0])[1]))


def test_step_grpo_is_grpo_where_only_outcomes_are_rewarded():
    """Equally many calls and no reward of a step: every call has the advantage of its trajectory."""
    group = [in_line(0.0, 0.0, outcome=value, name=str(value)) for value in (0.2, 0.5, 1.0, 0.0)]
    (made,) = ESTIMATORS["step_grpo"].function([group])
    for one, expected in zip(made, grpo([0.2, 0.5, 1.0, 0.0]), strict=True):
        assert one.steps == pytest.approx((expected, expected))
        assert one.whole == pytest.approx(expected)


def test_sft_weighs_every_response_1():
    """Maximum likelihood: nothing is compared."""
    assert wholes("sft", [[0.0, 5.0], [1.0]]) == [[1.0, 1.0], [1.0]]


def test_the_algorithms_of_a_spec_are_the_rows_of_the_table():
    """A row of the table is all that a new estimator needs to be named in a spec; no second list can fall behind."""
    assert get_args(BatchSpec.model_fields["algorithm"].annotation) == tuple(ESTIMATORS)


@pytest.mark.parametrize("algorithm", ESTIMATORS)
def test_an_estimator_is_its_row(algorithm):
    """Group size, loss and norm of an algorithm are those of its row, in the spec and in the trainer; the page has a line."""
    row = ESTIMATORS[algorithm]
    settings = TrainerSettings(
        model_dir=Path("model"),
        model_id="m",
        run_id="r",
        out_dir=Path("out"),
        spec=BatchSpec(algorithm=algorithm, group_size=row.members_min),
    )
    assert settings.loss_name == row.loss
    assert objective_of(settings).norm == row.norm
    assert f"| `{algorithm}` |" in PAGE.read_text()
    if row.members_min > 1:
        with pytest.raises(ValidationError, match="group_size"):
            BatchSpec(algorithm=algorithm, group_size=row.members_min - 1)


def test_every_preset_is_a_valid_spec_and_every_algorithm_has_one():
    """Whoever adds an estimator says in which sizes it is meant to be used."""
    assert {BatchSpec.model_validate({"preset": name}).algorithm for name in PRESETS} == set(ESTIMATORS)


def test_the_norm_of_a_run_is_that_of_its_loss_or_algorithm_unless_named():
    """GSPO is a mean over responses, as its paper has it; a name overrides all."""
    base = {"model_dir": Path("model"), "model_id": "m", "run_id": "r", "out_dir": Path("out")}
    assert TrainerSettings(**base).norm_name == "token_mean"
    assert TrainerSettings(**base, loss="gspo").norm_name == "sequence_mean"
    assert TrainerSettings(**base, loss="gspo", norm="constant").norm_name == "constant"
    assert set(get_args(TrainerSettings.model_fields["norm"].annotation)) == {"auto", *NORMS}
    assert set(get_args(TrainerSettings.model_fields["loss"].annotation)) == {"auto", *LOSSES}
