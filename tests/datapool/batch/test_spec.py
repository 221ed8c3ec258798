"""The batch spec: what is accepted, and how a mistake is told."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from claw_r1.datapool.batch.spec import BatchSpec, Bounds, load
from claw_r1.datapool.errors import BatchSpecInvalid


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    """A spec is YAML or JSON; what is not said has the default."""
    (tmp_path / "a.yaml").write_text("groups_per_batch: 2\ntags: [maths]\n")
    (tmp_path / "a.json").write_text('{"groups_per_batch": 2, "tags": ["maths"]}')
    assert load(tmp_path / "a.yaml") == load(tmp_path / "a.json") == BatchSpec(groups_per_batch=2, tags=("maths",))
    assert load(tmp_path / "a.yaml").zero_variance == "keep"


def test_a_spec_survives_its_own_json() -> None:
    """The JSON in a plan gives the spec back."""
    spec = BatchSpec(group_size=4, quality_min=0.5, response_tokens_max=100, scores={"entropy@1": Bounds(max=0.5)})
    assert BatchSpec.model_validate_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("group_size: 1", "group_size"),
        ("groups_per_batch: 0", "groups_per_batch"),
        ("staleness_max: -1", "staleness_max"),
        ("algorithm: magic", "algorithm"),
        ("grups_per_batch: 3", "grups_per_batch"),
        ("channel: val", "val"),
        ("reward_mean_min: 1\nreward_mean_max: 0", "no group could pass"),
        ("reward_weights: {style: 1}", "no source/name"),
        ("reward_weights: {'human:*': 1}", "no source/name"),
        ("rewards_required: [style]", "rewards_required: 'style' is no source/name"),
        ("reward_prefer: [[a/x, b]]", "reward_prefer: 'b' is no source/name"),
        ("reward_prefer: [[a/x]]", "prefers nothing"),
        ("reward_prefer: [[a/x, b/x], [b/x, a/x]]", "reward_prefer: 'a/x' stands there twice"),
        ("reward_prefer: [['human:*/x', 'human:ann/x']]", "'human:ann/x' is behind 'human:*/x'"),
        ("reward_prefer: [[a/x, b/x]]\nreward_weights: {b/x: 0}", "'b/x' has weight 0"),
        ("rewards_required: [a/x]\nreward_weights: {'*': 0}", "rewards_required: 'a/x' has weight 0"),
        ("reward_missing: reject", "reward_missing: asks for rewards_required"),
        (
            "rewards_required: [a/x]\nreward_missing: {value: .nan}",
            "reward_missing: {'value': nan} is none of: wait, reject, {value: X}",
        ),
        ("rewards_required: [a/x]\nreward_missing: 0", "reward_missing: 0 is none of: wait"),
        ("rewards_required: a/x", "rewards_required: 'a/x': expected a list"),
        ("reward_merge: sum", "reward_merge: 'sum'"),
        ("best_of: 0", "best_of"),
        ("mix: {expert: [0, 1]}", "mix.expert.2"),
        ("mix: {expert: [0, -1, 0]}", "mix.expert.1: -1: Input should be greater than or equal to 0"),
        ("mix: {expert: [0, .inf, 0]}", "mix.expert.1: inf: Input should be a finite number"),
        ("policy: any", "policy: any has no ratio, which grpo needs"),
        ("algorithm: sft\npolicy: any\nstale: tokens", "stale: tokens goes by versions"),
        ("truncated: skip", "truncated: 'skip'"),
        ("order: random", "order"),
        ("scores: {entropy: {min: 0}}", "scores: 'entropy' is no name@version"),
        ("scores: {entropy@1: {}}", "scores.entropy@1: bounds need a min or a max"),
        ("scores: {entropy@1: {min: 1, max: 0}}", "scores.entropy@1: min 1 is above max 0"),
        ("scores: {entropy@1: {least: 0}}", "scores.entropy@1.least: no such field"),
        ("scores: {entropy@1: {min: high}}", "scores.entropy@1.min"),
        ("quality_missing: maybe", "quality_missing"),
        ("quality_missing: wait", "quality_missing: wait asks for quality_min or scores"),
        ("tags: [a]\ntags_exclude: [a]", "tags_exclude: 'a' is in tags, too"),
        ("quality_mim: 0.5", "quality_mim: no such field; did you mean quality_min?"),
        ("preset: gropo", "preset: 'gropo'; there are: grpo"),
        ("groups_per_batch: many", "groups_per_batch: 'many'"),
        ("- 1", "expected a mapping of fields"),
        ("tags: maths", "tags: 'maths': expected a list"),
        ("scores: 3", "scores: 3: expected a mapping"),
        ("preset: [grpo]", "preset: ['grpo']; there are: grpo"),
        ("quality_min: .nan", "quality_min: nan: "),
        ("scores: {entropy@1: {max: .inf}}", "scores.entropy@1.max: inf: "),
        ("a: [", "cannot be read"),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path: Path, text: str, named: str) -> None:
    """What is wrong, unknown or contradictory is refused with one line that names file and field."""
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(BatchSpecInvalid) as refused:
        load(path)
    message = str(refused.value)
    assert str(path) in message
    assert named in message
    assert "\n" not in message


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """No file: one line, no traceback of ours."""
    with pytest.raises(BatchSpecInvalid, match="cannot be read"):
        load(tmp_path / "none.yaml")


def test_a_spec_is_frozen() -> None:
    """A spec cannot change under a plan."""
    with pytest.raises(ValidationError):
        BatchSpec().group_size = 3  # type: ignore[misc]  # the point of the test


def test_a_preset_is_a_starting_point() -> None:
    """`preset` fills the fields that the file does not set, and leaves no trace in the spec."""
    spec = BatchSpec.model_validate({"preset": "sft_best", "best_of": 2})
    assert (spec.algorithm, spec.best_of, spec.zero_variance) == ("sft", 2, "drop")
    assert BatchSpec.model_validate_json(spec.to_json()) == spec
    with pytest.raises(ValidationError, match="there are: grpo, dr_grpo"):
        BatchSpec.model_validate({"preset": "none"})
