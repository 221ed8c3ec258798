"""The picture of runs."""

from pathlib import Path

import pytest

from claw_r1.claw.runs.plot import draw, figure_of, file_name
from tests.claw.runs.whole_runs import ENVIRONMENTS, EPISODES, run_of, went


def test_an_environment_is_a_line_of_the_picture() -> None:
    """Its reward has a label, and lengths and shares have panels of their own."""
    panels = figure_of([went(EPISODES | ENVIRONMENTS)]).axes
    labels = {panel.get_ylabel().split("\n")[0]: panel.get_legend_handles_labels()[1] for panel in panels}
    assert {"math", "v1.2"} <= set(labels["reward per episode"])
    assert labels["tokens"] == ["mean"]
    assert labels["share of replies,"] == ["cut off", "failed"]


def test_a_picture_of_many_runs_has_a_name_that_a_file_can_have(tmp_path: Path) -> None:
    """Of few it says which; of others it begins like that, and another choice is another file."""
    assert file_name(["verbs/1", "verbs-2"]) == "verbs%2F1+verbs-2.png"
    runs = [f"qwen2.5-7b-grpo-lr1e-6-kl0.01-seed{number}" for number in range(8)]
    names = {file_name(runs), file_name(runs[::-1]), file_name([*runs[:7], "other"]), file_name(["é" * 512])}
    assert len(names) == 4
    for name in names:
        (tmp_path / name).touch()
    assert file_name(runs).startswith(f"{runs[0]}+{runs[1]}+")


@pytest.mark.parametrize("number", [0, 1, 30], ids=str)
def test_a_picture_is_drawn_of_any_run(number: int, tmp_path: Path) -> None:
    """Also of one without a batch, and of two runs together."""
    draw([run_of(number=number), run_of("other", 12)], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
