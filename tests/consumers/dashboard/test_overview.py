"""The overview: what waits where and why, said in plain words; live, and harmless whatever agents and workers are called."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, expect

from claw_r1.consumers.dashboard.overview.alarms import plain
from claw_r1.consumers.dashboard.overview.log_state import LogState
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.topics import CALLS, DEAD_LETTERS
from tests import facts
from tests.browser import browser
from tests.consumers.dashboard.overview_scene import MINUTE_US, WholeStage, plan, played, scene, worker
from tests.consumers.dashboard.stage import DashboardStage
from tests.consumers.runs import observed
from tests.sitting import PAYLOADS, Sitting, until

__all__ = ["browser"]


def overview(stage: DashboardStage, path: str = "overview", **query: Any) -> dict[str, Any]:
    """The answer, once everything is read."""
    with TestClient(stage.page(), base_url="http://localhost") as client:
        client.get("/api/v1/session")
        stage.wait_read()
        answer: dict[str, Any] = client.get(f"/api/v1/{path}", params=query).json()
        return answer


def test_evicted_groups_are_counted_nowhere() -> None:
    """Stubs stay for ever: the pool would only grow, and evaluations that are gone would count as training."""
    stage = scene()
    before = overview(stage)["pool"]["groups"]
    stage.tell(*played("gone", (1.0, 0.0), now_us()), facts.evicted_group("gone"))
    stage.tell(facts.call("exam", "t", "c", channel="val"), facts.evicted_group("exam"))
    after = overview(stage)["pool"]["groups"]
    assert after == before
    assert before["total"] > 0


def test_the_funnel_counts_what_is_where() -> None:
    """Of eleven trajectories one is played, two lack a reward, four were planned and three of them trained."""
    answer = overview(scene())
    trajectories, run = answer["pool"]["trajectories"], answer["run"]
    counted = {name: trajectories[name] for name in ("total", "open", "over_without_reward", "rewarded", "ready")}
    assert counted == {"total": 11, "open": 1, "over_without_reward": 2, "rewarded": 8, "ready": 10}
    assert (run["planned"]["trajectories"], run["planned"]["trained"], run["batches"]) == (4, 3, 2)
    assert list(run["planned"]["left_out"].values()) == [1]
    assert [(each["version"], len(each["workers"])) for each in run["versions"]] == [(2, 1), (1, 1)]
    assert sum(answer["pool"]["curves"]["calls"]) == 11
    assert [value for value in answer["pool"]["curves"]["returns"] if value is not None] == [0.5] * 4


def test_an_open_trajectory_with_a_reward_is_not_yet_rewarded() -> None:
    """Steps of a trajectory that is still played may have rewards: of those that are over, no more than all have a return."""
    stage = WholeStage([facts.call("g", "t"), facts.reward("g", "t", 0.5, call_id="c"), facts.completed("g", "u")])
    trajectories = overview(stage)["pool"]["trajectories"]
    assert (trajectories["total"], trajectories["open"], trajectories["rewarded"]) == (2, 1, 0)


def test_evaluation_is_counted_apart() -> None:
    """What channel val has is never trained, so it is no part of the way."""
    stage = WholeStage(facts_of_channel("val"), facts_of_channel("train"))
    trajectories = overview(stage)["pool"]["trajectories"]
    assert (trajectories["total"], trajectories["evaluation"]) == (1, 1)


def facts_of_channel(channel: str) -> list[Any]:
    return [facts.call(channel, f"t-{channel}", channel=channel)]


def test_why_nobody_trains_is_said_in_plain_words() -> None:
    """Seven groups that lack a slot are one sentence, however many members lack it."""
    reasons = [
        {"kind": "wait", "reason": "reward_required_for_3: judge/style", "groups": 4},
        {"kind": "wait", "reason": "reward_required_for_8: judge/style", "groups": 3},
        {"kind": "never", "reason": "larger_than_a_plan", "groups": 1},
    ]
    assert plain(reasons) == {"lack judge/style": 7, "are left out: larger_than_a_plan": 1}
    problems = [alarm["what"] for alarm in overview(scene())["alarms"]]
    assert problems[0] == "Nobody trains for 10 min: 3 groups wait; 3 groups lack judge/style."


def test_a_run_that_trains_is_no_alarm() -> None:
    """Groups may wait while batches come."""
    stage = scene()
    stage.report(plan(2, "g2", (True, True)), observed.at(observed.trained(2, 1.0), now_us() / 1e6))
    assert not [alarm for alarm in overview(stage)["alarms"] if "trains" in alarm["what"]]


def test_workers_that_said_farewell_are_missed_while_a_run_goes_on() -> None:
    """After its end they are not."""
    stage = scene()
    stage.report(*[worker(name, now_us(), state="dead") for name in ("w-1", PAYLOADS["script"])])
    assert "No worker takes calls to train on." in [alarm["what"] for alarm in overview(stage)["alarms"]]
    stage.report(observed.ended(2))
    assert overview(stage)["alarms"] == []


def test_an_empty_log_says_what_to_type() -> None:
    """Nothing captured is a note with a command, no blank page."""
    (alarm,) = overview(DashboardStage())["alarms"]
    assert (alarm["level"], alarm["what"], alarm["command"]) == ("note", "Nothing is captured yet.", "claw demo")


def test_facts_without_streams_and_dead_letters() -> None:
    """Facts that nobody folds are a problem: at once where nobody ever did, else once nothing moves."""
    stage = DashboardStage(played("g", (1.0,), MINUTE_US))
    now_s = [100.0]
    state = LogState(stage.log, lambda: now_s[0])
    (never,) = state.answer()["alarms"]
    assert never["what"] == "3 facts are not folded into the pool, and no stream processor has ever read them."
    place = next(place for place, end in stage.log.end_offsets([CALLS]).items() if end)
    stage.log.commit_offsets(stage.log.settings.catalogue().streams_group, {place: 1})
    assert state.answer()["alarms"] == []
    now_s[0] += 60
    (stuck,) = state.answer()["alarms"]
    assert stuck["what"] == "2 facts are not folded into the pool, and no stream processor has moved for 60 s."
    stage.log.commit_offsets(stage.log.settings.catalogue().streams_group, {place: 3})
    assert state.answer()["alarms"] == []
    stage.log.producer().publish_now(DEAD_LETTERS, b"g", facts.opened())
    assert state.answer()["dead_letters"] == 1


def test_a_metric_that_is_no_number_is_none() -> None:
    """JSON has no NaN and no infinity; the page draws a gap."""
    stage = scene()
    stage.report(observed.at(observed.trained(2, float("nan"), staleness_mean=float("inf")), now_us() / 1e6))
    run = overview(stage)["run"]
    assert [run["curves"][name][-1][1] for name in ("reward", "staleness_mean")] == [None, None]


def test_an_unknown_run_is_a_sentence() -> None:
    """Problem details that name the command."""
    answer = overview(scene(), run="nope")
    assert (answer["status"], "claw runs list" in answer["detail"]) == (404, True)


@pytest.fixture
def sitting(browser: Browser) -> Iterator[tuple[WholeStage, Sitting]]:
    stage = scene()
    with stage.served() as url:
        one = Sitting(browser, url, viewport={"width": 1280, "height": 1000})
        yield stage, one
        one.close()


@pytest.mark.process
@pytest.mark.slow
def test_the_page_is_live_and_harmless(sitting: tuple[WholeStage, Sitting]) -> None:
    """Boxes, alarms and versions; a call appears without a reload; another span is in the address."""
    stage, one = sitting
    page = one.open("/overview", waits_for=".way li")
    expect(page.locator(".alarms")).to_contain_text("3 groups lack judge/style")
    expect(page.locator(".alarms")).to_contain_text("is silent")
    boxes = page.locator(".way > li")
    expect(boxes).to_have_count(6)
    expect(boxes.nth(0)).to_contain_text("11 calls")
    expect(boxes.nth(3)).to_contain_text("3 ready groups wait")
    stage.tell(*played("late", (1.0,), now_us()))
    expect(boxes.nth(0)).to_contain_text("12 calls")
    expect(page.locator(".curves canvas")).to_have_count(4)
    page.get_by_label("of the last").select_option("3600")
    until(page, "location.search === '?span=3600'")
    assert page.evaluate("document.querySelectorAll('*').length") < 1500
    one.clean(page)
