"""A batch by its address: what its plan froze, when its members waited for what, and the lab as of it."""

import pytest
from msgspec.structs import replace

from claw_r1.schemas.events import CallCaptured, Timings
from tests.consumers.dashboard.routes.test_lab import reading
from tests.consumers.dashboard.stage import body
from tests.consumers.dashboard.training import SPEC, TrainingStage, world
from tests.trainer.pooled import group

ONE = SPEC.model_copy(update={"groups_per_batch": 1})
SECOND_US = 1_000_000


def test_a_batch_is_opened() -> None:
    """Its plan as it was frozen, those that move the policy most first; another number says which there are."""
    stage = TrainingStage(group("a", [0.0, 1.0, 0.5]))
    stage.begin()
    stage.train(0, ONE.model_copy(update={"best_of": 1}))
    with reading(stage) as reader:
        batch = reader.get("batch", run="run", n=0)
        assert (batch["version"], batch["seed"], batch["groups_total"], batch["total"]) == (0, 7, 1, 3)
        assert (batch["trained"]["version"], batch["previous"], batch["next"]) == (1, None, None)
        assert [round(each["advantage"], 2) for each in batch["members"]] == [-1.0, 1.0, 0.0]
        loser, winner, third = batch["members"]
        assert (winner["calls_trained"], winner["why_not"]) == (2, None)
        assert "not among the best 1" in loser["why_not"]
        assert reader.get("batch", run="run", n=0, limit=1, after=2)["members"] == [third]
        assert "it has planned 0 to 0" in reader.refusal("batch", 404, run="run", n=5)
        assert reader.get("named", q="run#0")["views"] == [
            {"kind": "batch", "view": "batch", "values": {"run": "run", "n": 0}}
        ]
        assert "/api/v1/runs lists them" in reader.refusal("batch/replies", 404, run="nobody", n=0)


def test_its_tiles_count_what_its_plan_says() -> None:
    """Equal groups, replies that were cut off, lengths and versions."""
    cut = [
        replace(each, finish_reason="length") if isinstance(each, CallCaptured) and each.call_id == "c1" else each
        for each in group("cut", [0.0, 1.0], at_us=2)
    ]
    stage = TrainingStage([*group("equal", [1.0, 1.0], at_us=1), *cut])
    stage.begin()
    stage.train(0)
    with reading(stage) as reader:
        batch = reader.get("batch", run="run", n=0)
    tiles = batch["tiles"]
    assert (tiles["return_mean"], tiles["return_deviation"]) == (0.75, pytest.approx(0.1875**0.5))
    assert (tiles["equal_groups"], tiles["groups"]) == (1, 2)
    assert (tiles["truncated"], tiles["replies"], tiles["tokens"]) == (2, 8, 20)
    assert (tiles["length_p50"], batch["sampled_by"]) == (2.5, [{"versions": [0, 0], "members": 4}])
    assert [(each["group_id"], each["spread"]) for each in batch["groups"]] == [("cut", 1.0), ("equal", 0.0)]
    assert sorted(batch["dots"]) == [[0.0, 5, 1], [1.0, 5, 0], [1.0, 5, 0], [1.0, 5, 1]]


def test_a_member_says_when_it_waited_for_what() -> None:
    """Queue, first token, generation, and by which version; the pool's task; in the order of time."""
    timings = Timings(received_us=10, dispatched_us=13, first_token_us=17, done_us=26)
    told = [
        replace(each, timings=timings) if isinstance(each, CallCaptured) and each.call_id == "c1" else each
        for each in group("a", [0.0, 1.0], task='"verbs"')
    ]
    stage = TrainingStage(told)
    stage.begin()
    stage.train(0, ONE)
    with reading(stage) as reader:
        members = reader.get("batch", run="run", n=0)["members"]
    assert [each["task"] for each in members] == ['"verbs"'] * 2
    assert [each["lane"] for each in members] == [[[0, 0, None, 0, 0], [10, 3, 4, 9, 0]]] * 2


def test_the_end_of_each_reply_is_told() -> None:
    """In the order of the members, its last characters; null where it says nothing in words."""
    answer, _ = body({"choices": [{"index": 0, "message": {"role": "assistant", "content": "x" * 500 + " a cat"}}]})
    spoken = [
        replace(each, response_body=answer) if isinstance(each, CallCaptured) and each.trajectory_id == "t1" else each
        for each in group("a", [0.0, 1.0])
    ]
    stage = TrainingStage(spoken)
    stage.begin()
    stage.train(0, ONE)
    with reading(stage) as reader:
        (silent, said) = reader.get("batch/replies", run="run", n=0)["replies"]
        assert reader.get("batch/replies", run="run", n=0, after=1) == {"replies": [said]}
    assert (silent, len(said), said.endswith(" a cat")) == (None, 160, True)


def test_the_lab_as_of_a_batch_is_what_was_trained() -> None:
    """Groups planned from there on are free again; what a later version sampled, or came later, was not there."""
    stage = world()
    stage.fill(group("slow", [0.0, 1.0], at_us=59 * SECOND_US + 1))
    with reading(stage) as reader:
        now = reader.get("lab/preview", run="run")
        then = reader.get("lab/preview", run="run", batch=0)
        other = reader.get("lab/preview", run="run", batch=0, spec="{group_size: 2, groups_per_batch: 1}")
        missing = reader.refusal("lab/preview", 404, run="run", batch=9)
    assert now["preview"]["chosen"] == ["next", "equal"]
    assert (then["preview"]["chosen"], then["preview"]["version"]) == (["a", "b"], 0)
    later = dict.fromkeys(("next", "equal", "short", "late", "slow"), "skipped: sampled_later")
    assert then["preview"]["left_out"] == {**later, "gone": "skipped: too_stale"}
    assert other["differences"] == {"groups": [{"group_id": "b", "own": None, "this": "next_batch"}], "total": 1}
    assert "it has planned 0 to 0" in missing


def test_a_run_without_a_plan_hides_no_other() -> None:
    """The lab begins with the newest run that has planned."""
    stage = world()
    stage.begin(run_id="fresh")
    with reading(stage) as reader:
        assert reader.get("lab/preview")["preview"]["run_id"] == "run"
        assert reader.get("lab/preview", run="fresh")["preview"] is None
