"""The frame of `make bench-trainer`: figures with targets, parts that break alone, and the loop in one process."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bench import report, trainer_staleness
from bench.in_process import batches_until
from bench.trainer import environments
from bench.trainer.__main__ import BENCH
from claw_r1.claw.demo.models.tiny_model import Demonstration, Recipe
from claw_r1.trainer.config.objective import ObjectiveSettings


def test_the_table_says_what_is_met_and_what_is_missed() -> None:
    """Nested figures by dots; what begins with an underscore is not shown."""
    figures = {"tree_ratio": 2.5, "verbs": {"share_within_band": 0.5}, "_dates": {"x": "y"}}
    text = report.table(figures, BENCH.targets)
    assert "tree_ratio" in text
    assert ">= 2.4: met" in text
    assert ">= 0.9: MISSED" in text
    assert "_dates" not in text


def test_a_part_that_breaks_is_said_to_have_failed() -> None:
    """And the others are measured; where it ran, its sizes are those that it takes, and floats have few digits."""
    assert "failed" in report.measured("nonsense", "bench.trainer.nonsense:measure", {})["nonsense"]
    assert report.call("tests.bench.test_trainer:doubled", {"size": 3, "other": 1}) == {"n": 6, "share": 0.3333}


def doubled(size: int) -> report.Figures:
    return {"n": 2 * size, "share": 1 / size}


def test_a_bench_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """Resumed, it measures the part that was cut off, the ones behind it and one that failed; then it is whole, and begins anew."""
    calls: list[str] = []

    def part(name: str, *endings: Any) -> report.Measure:
        rest = iter(endings)

        def measure() -> report.Figures:
            calls.append(name)
            ending = next(rest, {"n": 1})
            if ending is KeyboardInterrupt:
                raise KeyboardInterrupt
            return {name: ending}

        return measure

    parts = {
        "a": part("a", {"n": 3}),
        "b": part("b", {"failed": "why"}),
        "c": part("c", KeyboardInterrupt),
        "d": part("d"),
    }
    with pytest.raises(KeyboardInterrupt):
        report.run("t", parts, {}, folder=tmp_path)
    assert report.run("t", parts, {}, resume=True, folder=tmp_path) == 0
    assert "".join(calls) == "abcbcd"
    figures = json.loads((tmp_path / "t.json").read_text())
    assert {name: figures[name]["n"] for name in parts} == {"a": 3, "b": 1, "c": 1, "d": 1}
    calls.clear()
    assert report.run("t", parts, {}, resume=True, folder=tmp_path) == 0
    assert "".join(calls) == "abcd"


def test_no_two_ways_of_the_staleness_bench_are_one_computation() -> None:
    """With one step per batch decoupled PPO is TIS, and CISPO is TIS with its own cap; and what is compared takes as many steps."""
    losses = {name: way.get("loss") for name, way in trainer_staleness.WAYS.items()}
    ways = {
        name: ObjectiveSettings.model_validate(way.get("objective", {})) for name, way in trainer_staleness.WAYS.items()
    }
    steps = {name: way.minibatches * way.epochs for name, way in ways.items()}
    assert [name for name, way in ways.items() if way.correction == "decoupled" and steps[name] == 1] == []
    assert len({(losses[name], way.model_dump_json()) for name, way in ways.items()}) == len(ways)
    assert set(trainer_staleness.COUNTERPARTS) == set(ways) - {"none", "none_2x2"}
    for name, other in trainer_staleness.COUNTERPARTS.items():
        assert steps[name] == steps[other]


def played(path: Path) -> tuple[dict[trainer_staleness.Cell, int], list[trainer_staleness.Cell]]:
    """All cells of a file, and those that were played for it, whose figures come at once."""
    calls: list[trainer_staleness.Cell] = []

    def batches(lag: int, way: str, seed: int) -> int:
        calls.append((lag, way, seed))
        return 61 if way == "tis" else 20 + lag + seed

    return trainer_staleness.completed(path, batches), calls


def test_the_staleness_bench_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """Killed within a line: that cell is played again and the ones before it are not; a cell of other code is."""
    path, wanted = tmp_path / "cells.jsonl", list(trainer_staleness.cells_wanted())
    known, first = played(path)
    assert first == wanted
    lines = path.read_text().splitlines(keepends=True)
    of_other_code = lines[0].replace(trainer_staleness.code("none"), "0" * 16)
    path.write_text("".join([of_other_code, *lines[1:10], lines[10][:20]]))
    assert played(path) == (known, [wanted[0], *wanted[10:]])
    assert played(path) == (known, [])


def test_the_table_of_staleness_has_bands_of_whole_rows(tmp_path: Path) -> None:
    """Median, least and most of three seeds; what has two of them shows nothing."""
    known, _ = played(tmp_path / "cells.jsonl")
    del known[4, "none", 2]
    rows = trainer_staleness.table(known).splitlines()
    assert "| `none` | 21 (20 to 22) | 23 (22 to 24) |  |" in rows
    assert "| `tis` | >60 (>60 to >60) | >60 (>60 to >60) | >60 (>60 to >60) |" in rows


def test_the_model_of_two_environments_sees_each_as_often_as_its_own_model() -> None:
    """The steps of both, and their dialogues in proportion; which comes is drawn."""
    often = Recipe(steps=100, batch_dialogues=32), Recipe(steps=120, batch_dialogues=8)
    joint = environments.joint_recipe(often)
    assert (joint.steps, joint.batch_dialogues) == (220, 19)
    weights = {shown(word): environments.dialogues(recipe) for word, recipe in zip("ab", often, strict=True)}
    speak, dice = environments.joint_demonstration(weights), random.Random(0)
    share = sum(speak(dice)[0]["content"] == "a" for _ in range(2000)) / 2000
    assert share == pytest.approx(3200 / 4160, abs=0.03)


def shown(word: str) -> Demonstration:
    return lambda _: [{"role": "user", "content": word}]


def test_an_environment_that_falls_behind_is_seen() -> None:
    """By the means of the last five batches over the seeds, and of the worst seed; one that gains makes up for nothing."""
    one = {"a": [0.0] * 5 + [0.9] * 5, "b": [0.5] * 5}, {"a": [0.1] * 5 + [0.8] * 5, "b": [0.9] * 5}
    other = {"a": [0.9] * 5, "b": [0.5] * 5}, {"a": [0.3] * 5 + [0.9] * 5, "b": [0.5] * 5}
    figures = environments.figures_of([one, other])
    assert (figures["behind"], figures["behind_worst"]) == (pytest.approx(0.05), pytest.approx(0.1))
    assert figures["a"] == pytest.approx({"first": 0.2, "alone": 0.9, "together": 0.85})


def test_the_goal_is_a_mean_of_five() -> None:
    """The first batch at which it is reached, counted from 1."""
    assert batches_until([0.0, 1.0, 1.0, 1.0, 1.0, 1.0], 0.9) == 6
    assert batches_until([1.0] * 4, 0.9) is None
