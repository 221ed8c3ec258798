"""The demo's verdict: each target can be missed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from claw_r1.claw.demo.report import Result, of_batches, plot, reward_first, targets
from tests.claw.events import played, trained

GOOD = Result(
    reward="agent",
    protocol="chat",
    reward_first=0.12,
    reward_last=0.96,
    greedy_before=0.0,
    greedy_after=1.0,
    versions=30,
    batches=30,
    calls_captured=5000,
    calls_replied=5000,
    calls_unanswered=0,
    calls_by_worker={"a": 2500, "b": 2500},
    workers=2,
    idle={"engines": None, "trainer": None, "advice": None},
    groups_trained=240,
    max_logprob_gap=3e-6,
    stale_max=1,
    dead_letters=0,
    seconds=170.0,
    plot="reward.png",
)


def missed(result: Result, *, control: bool = False) -> list[str]:
    return [target.name for target in targets(result, control=control) if not target.met]


def test_a_run_that_learnt_meets_every_target() -> None:
    """The figures of a good run miss nothing."""
    assert missed(GOOD) == []
    assert [
        target for target in targets(replace(GOOD, stale_max=4), control=False, staleness_max=4) if not target.met
    ] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reward_first", 0.3),
        ("reward_first", None),
        ("reward_last", 0.89),
        ("reward_last", None),
        ("greedy_before", 0.2),
        ("greedy_after", 0.8),
        ("calls_replied", 4999),
        ("calls_replied", 5001),
        ("max_logprob_gap", 2e-4),
        ("max_logprob_gap", None),
        ("dead_letters", 1),
        ("stale_max", 2),
        ("calls_by_worker", {"a": 5000}),
    ],
)
def test_each_target_can_be_missed(field: str, value: Any) -> None:  # a value of any field
    """One bad figure, or one that could not be measured, misses exactly one target."""
    assert len(missed(replace(GOOD, **{field: value}))) == 1


def test_a_call_that_no_agent_saw_a_reply_of_may_be_captured_or_not() -> None:
    """A stop, or a gateway's end, comes between the capture and the reply; more captures than that are nobody's calls."""
    cut = replace(GOOD, calls_unanswered=10)
    assert [missed(replace(cut, calls_captured=number)) for number in (5000, 5004, 5010)] == [[], [], []]
    assert len(missed(replace(cut, calls_captured=5011))) == len(missed(replace(cut, calls_captured=4999))) == 1


def test_a_control_run_must_not_learn() -> None:
    """With learning rate 0, a reward that climbed is the failure."""
    control = replace(GOOD, reward_last=0.12, greedy_after=0.0)
    assert missed(control, control=True) == []
    assert len(missed(GOOD, control=True)) == 1
    assert len(missed(replace(control, versions=19), control=True)) == 1


def test_the_first_reward_is_version_0_of_this_run_only() -> None:
    """Later versions, the val channel and other runs do not count; fewer than 64 trajectories are no measurement."""
    first = [played(f"t{i}", 0.25) for i in range(64)]
    others = [played("v", 1.0, channel="val"), played("o", 1.0, run_id="other"), played("later", 1.0, version=1)]
    assert reward_first(first + others, "r") == pytest.approx(0.25)
    assert reward_first(first[:63] + others, "r") is None


def test_batches_sum_up_to_their_last_five() -> None:
    """The last reward is the mean of the last five batches; gaps and staleness are the worst seen."""
    batches = [trained(i, reward) for i, reward in enumerate([0.1, 0.9, 0.9, 1.0, 1.0, 1.0])]
    batches.append(trained(6, 0.6, max_logprob_gap=5e-5, staleness_max=2.0))
    summed = of_batches(batches)
    assert summed["reward_last"] == pytest.approx((0.9 + 1.0 + 1.0 + 1.0 + 0.6) / 5)
    assert (summed["batches"], summed["versions"], summed["groups_trained"]) == (7, 7, 56)
    assert (summed["max_logprob_gap"], summed["stale_max"]) == (5e-5, 2)


def test_a_run_without_batches_has_a_result(tmp_path: Path) -> None:
    """Nothing trained is reported as such, and still has a plot."""
    assert of_batches([])["reward_last"] is None
    assert plot([], tmp_path / "reward.png", title="nothing").stat().st_size > 0


def test_a_model_that_judges_owes_a_doubled_greedy_score_and_no_reward_of_its_own() -> None:
    """Its scale is not the environment's; from next to nothing, double is double of what the demo starts at most with."""
    judged = replace(GOOD, reward="model", reward_first=0.5, reward_last=None, greedy_before=0.05)
    by_model = [
        target.name
        for target in targets(replace(judged, greedy_after=0.2), control=False, exact=False)
        if not target.met
    ]
    assert by_model == []
    short = [
        target.name
        for target in targets(replace(judged, greedy_after=0.19), control=False, exact=False)
        if not target.met
    ]
    assert short == ["greedy after"]
