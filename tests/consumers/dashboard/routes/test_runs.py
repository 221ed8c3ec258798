"""Runs and lineage as the page reads them: the answers of `claw runs` and `claw lineage`, bounded."""

import pytest

from claw_r1.consumers.dashboard.routes.parts import lineage
from claw_r1.consumers.runs.summary import whole
from claw_r1.schemas.envelopes import now_us
from tests.consumers.dashboard.routes.test_lab import reading
from tests.consumers.dashboard.training import SPEC, TrainingStage, world
from tests.trainer.pooled import group


def test_runs_are_listed_and_told_as_claw_tells_them() -> None:
    """List, and one whole; a name that is none says where the names are."""
    stage = world()
    stage.begin('{"learning_rate": 1}', "other")
    with reading(stage) as reader:
        listed = reader.get("runs")
        assert [each["run"] for each in listed["runs"]] == ["other", "run"]
        assert "grad_norm" in listed["metrics"]
        run = stage.source.ask_runs(lambda state: state.runs["run"])
        answer = reader.get("runs/whole", run="run")
        assert answer | {"age_s": 0} == whole(run, now_us()) | {"age_s": 0}
        assert answer["skipped"] == {"too_stale": 1}
        assert "/api/v1/runs lists them" in reader.refusal("runs/whole", 404, run="<b>nobody</b>")


def test_curves_are_columns_and_many_batches_are_thinned() -> None:
    """Every metric of every batch, cumulated tokens; of many every k-th and the last; what is no number is null."""
    stage = TrainingStage([fact for n in range(14) for fact in group(f"g{n:02}", [0.0, 1.0], at_us=n)])
    stage.begin()
    for sequence in range(7):
        stage.train(sequence, SPEC.model_copy(update={"staleness_max": 9}), reward=sequence / 10, loss=float("nan"))
    with reading(stage) as reader:
        (run,) = reader.get("runs/curves", run="run")["runs"]
        assert (run["batch"], run["version"]) == (list(range(7)), list(range(1, 8)))
        assert run["tokens"] == [100.0 * n for n in range(1, 8)]
        assert run["metrics"]["reward"] == [n / 10 for n in range(7)]
        assert run["metrics"]["loss"] == [None] * 7
        (thin,) = reader.get("runs/curves", run="run", points=3, metric=["reward", "none"])["runs"]
        assert (thin["every"], thin["batch"], thin["batches"]) == (3, [0, 3, 6], 7)
        assert thin["metrics"] == {"reward": [0.0, 0.3, 0.6], "none": [None] * 3}
        (thin,) = reader.get("runs/curves", run="run", points=2, metric=["reward"])["runs"]
        assert thin["batch"] == [0, 4, 6]


def test_as_many_metrics_as_a_run_has_can_be_named() -> None:
    """A trainer writes some 75 of a batch; without a name all of them come."""
    stage = TrainingStage([*group("a", [0.0, 1.0], at_us=1), *group("b", [0.0, 1.0], at_us=2)])
    stage.begin()
    stage.train(0, **{f"metric_{n}": float(n) for n in range(120)})
    with reading(stage) as reader:
        names = [name for name in reader.get("runs")["metrics"] if name.startswith("metric_")]
        (some,) = reader.get("runs/curves", run="run", metric=names)["runs"]
        assert some["metrics"] == {name: [float(name.partition("_")[2])] for name in names}
        (whole_run,) = reader.get("runs/curves", run="run")["runs"]
        assert some["metrics"].items() < whole_run["metrics"].items()


def test_lineage_goes_both_ways() -> None:
    """call -> batch -> version -> what that sampled; version -> batch -> calls; a skipped group says why, an unknown id says nothing."""
    with reading(world()) as reader:
        down = reader.get("lineage", id="t0")
        assert down["kind"] == "trajectory"
        (batch,) = down["batches"]
        assert (batch["sequence"], batch["made_version"], batch["trained_us"]) == (0, 1, 60_000_000)
        assert {each["group_id"] for each in batch["trajectories"]} == {"a", "b"}
        assert [each["sampled_by"] for each in batch["trajectories"][0]["steps"]] == [["run/0"], ["run/0"]]
        assert {each["group_id"] for each in down["next"]} == {"next", "equal", "short", "late"}
        up = reader.get("lineage", id="run/1")
        assert (up["kind"], up["weights"]["sequence"], up["batches"][0]["sequence"]) == ("version", 0, 0)
        assert len(up["batches"][0]["trajectories"]) == 4
        first = reader.get("lineage", id="run/0")
        assert (first["batches"], {each["group_id"] for each in first["next"]}) == ([], {"a", "b", "gone"})
        gone = reader.get("lineage", id="gone")
        assert gone["skipped"] == [{"run_id": "run", "group_id": "gone", "reason": "too_stale"}]
        waiting = reader.get("lineage", id="late")
        assert (waiting["kind"], waiting["batches"], waiting["skipped"]) == ("group", [], [])
        assert reader.get("lineage", id="nobody/99999999999999999999")["kind"] == "unknown"
        cut = reader.get("lineage", id="c0", limit=1)
        assert (len(cut["batches"][0]["trajectories"]), cut["left_out"]) == (1, {"batches": 0, "trajectories": 3})


def test_lineage_reads_few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that every batch names is answered by the first plans; the others are counted."""
    monkeypatch.setattr(lineage, "PLANS_MAX", 1)
    stage = TrainingStage([*group("a", [0.0, 1.0], at_us=1), *group("b", [0.0, 1.0], at_us=2)])
    stage.begin()
    for sequence in range(2):
        stage.train(sequence, SPEC.model_copy(update={"groups_per_batch": 1}))
    with reading(stage) as reader:
        answer = reader.get("lineage", id="c0")
        assert ([each["sequence"] for each in answer["batches"]], answer["plans_left_out"]) == ([0], 1)
