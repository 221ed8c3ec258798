"""The overview: what waits where and why, said in plain words; live, and harmless whatever agents and workers are called."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from claw_r1.consumers.dashboard.overview.alarms import plain
from claw_r1.consumers.dashboard.overview.log_state import LogState
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import Sampling, VersionSpan
from claw_r1.schemas.topics import CALLS
from tests import facts
from tests.browser import browser
from tests.browser_session import PAYLOADS, BrowserSession, until
from tests.consumers.dashboard.overview_scene import MINUTE_US, WholeStage, plan, played, scene, worker
from tests.consumers.dashboard.stage import DashboardStage
from tests.consumers.runs import observed

__all__ = ["browser"]


def overview(stage: DashboardStage, path: str = "overview", **query: Any) -> dict[str, Any]:
    """The answer, once everything is read."""
    with stage.asked() as client:
        answer: dict[str, Any] = client.get(f"/api/v1/{path}", params=query).json()
        return answer


def counted(answer: dict[str, Any]) -> dict[str, int]:
    """The numbers of the pool by name."""
    return {name: each["count"] for name, each in answer["pool"].items() if isinstance(each, dict) and "count" in each}


def links(value: Any) -> Iterator[dict[str, Any]]:
    """Every number of an answer that leads somewhere."""
    if isinstance(value, dict):
        if "count" in value and "to" in value:
            yield value
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from links(each)


def test_evicted_groups_are_counted_nowhere() -> None:
    """Stubs stay for ever: the pool would only grow, and evaluations that are gone would count as training."""
    stage = scene()
    before = counted(overview(stage))
    stage.tell(*played("gone", (1.0, 0.0), now_us()), facts.evicted_group("gone"))
    stage.tell(facts.call("exam", "t", "c", channel="val"), facts.evicted_group("exam"))
    after = counted(overview(stage))
    assert after["groups"] == before["groups"] == 6
    assert after["groups_ready"] == before["groups_ready"]


def test_the_stations_count_what_is_where() -> None:
    """Of eleven trajectories one is played, four were planned and three of them trained; two batches, two versions."""
    answer = overview(scene())
    numbers, run = counted(answer), answer["run"]
    assert numbers == {
        "calls": 11,
        "calls_untrainable": 0,
        "trajectories": 11,
        "trajectories_open": 1,
        "trajectories_ready": 10,
        "trajectories_of_evaluations": 0,
        "groups": 6,
        "groups_ready": 5,
    }
    assert (run["planned"]["trajectories"], run["planned"]["trained"], run["batches"]) == (4, 3, 2)
    assert list(run["planned"]["left_out"].values()) == [1]
    assert [(each["version"], len(each["workers"])) for each in run["versions"]] == [(2, 1), (1, 1)]
    assert (run["last_batch"], round(run["batch_s"])) == (1, 270)


def test_evaluation_is_counted_apart() -> None:
    """What channel val has is never trained: no part of the way, and its greedy calls are no alarm."""
    greedy = {"sampling": Sampling(temperature=0.0, top_p=1.0, top_k=0)}
    stage = WholeStage([facts.call("val", f"t{n}", f"c{n}", channel="val", **greedy) for n in range(5)])
    stage.tell(facts.call("train", "t-train"))
    answer = overview(stage)
    numbers = counted(answer)
    assert (numbers["calls"], numbers["trajectories"], numbers["trajectories_of_evaluations"]) == (1, 1, 5)
    assert not [alarm for alarm in answer["alarms"] if "cannot be trained" in alarm["what"]]
    stage.tell(*[facts.call("train", f"t{n}", f"g{n}", **greedy) for n in range(2)])
    assert [alarm["what"] for alarm in overview(stage)["alarms"]] == ["2 of 3 calls cannot be trained: greedy (2)."]


def two_runs(own: str | None = "other") -> WholeStage:
    """A second run on the same log, whose weights sampled two groups, and an evaluation; own: what its agents call it."""
    stage = scene()
    other = (VersionSpan(run_id="other", version=0, start=0, end=3),)
    named = {"envelope": facts.envelope(run_id=own), "spans": other}
    for n in range(2):
        stage.tell(*[facts.call(f"o{n}", f"o{n}", f"o{n}-{k}", **named) for k in range(3)])
        stage.tell(facts.completed(f"o{n}", f"o{n}", calls=3, reward=1.0, envelope=facts.envelope(run_id=own)))
    stage.tell(facts.call("exam", "exam", "exam", channel="val"))
    stage.report(observed.at(observed.started("other"), now_us() / 1e6))
    return stage


def test_a_run_is_counted_alone() -> None:
    """Of two runs on one log each has its own numbers, all runs have both; what waits for one is no other's."""
    stage = two_runs()
    one, other, both = (overview(stage, run=name) for name in ("run", "other", "*"))
    assert [counted(each)["calls"] for each in (one, other, both)] == [11, 6, 17]
    assert [counted(each)["groups_ready"] for each in (one, other, both)] == [5, 2, 7]
    assert (one["run"]["waiting"]["groups"], other["run"]["waiting"]["groups"], both["run"]) == (3, 2, None)
    assert {each["run"] for each in both["runs"]} == {"run", "other"}
    assert [each["pool"]["of_all"] for each in (one, other, both)] == [False, False, True]


def test_agents_that_know_no_run_are_not_counted_as_none() -> None:
    """Where no call names the run, but its weights sampled some, the numbers are of all, and say so; before its first call they are none."""
    answer = overview(two_runs(None), run="other")
    assert (counted(answer)["calls"], answer["pool"]["of_all"]) == (17, True)
    fresh = scene()
    fresh.report(observed.started("fresh"))
    answer = overview(fresh, run="fresh")
    assert (counted(answer)["calls"], answer["pool"]["of_all"]) == (0, False)


@pytest.mark.parametrize("run", ["run", "other", "*"])
def test_what_a_number_leads_to_counts_the_same(run: str) -> None:
    """Every number that is a link is asked for where it leads, of each run and of all."""
    stage = two_runs()
    stage.tell(facts.call("greedy", "t", "c", sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0)))
    with stage.asked() as client:
        answer = client.get("/api/v1/overview", params={"run": run}).json()
        several = list(links(answer))
        for each in several:
            view, values = each["to"]
            assert view == "explorer"
            assert client.get("/api/v1/rows", params=values).json()["total"] == each["count"], values
    assert len(several) >= 8
    assert sum(each["count"] > 0 for each in several) >= 5


def test_why_nobody_trains_is_said_in_plain_words() -> None:
    """Seven groups that lack a slot are one sentence, however many members lack it."""
    reasons = [
        {"kind": "wait", "reason": "reward_required_for_3: judge/style", "groups": 4},
        {"kind": "wait", "reason": "reward_required_for_8: judge/style", "groups": 3},
        {"kind": "never", "reason": "larger_than_a_plan", "groups": 1},
    ]
    assert plain(reasons) == {"lack judge/style": 7, "are left out: larger_than_a_plan": 1}
    problems = [alarm["what"] for alarm in overview(scene())["alarms"]]
    assert problems[0] == "Nobody trains for 10 min; a batch takes 4 min. 3 groups wait; 3 groups lack judge/style."


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
    (never,) = state.answer(0)["alarms"]
    assert never["what"] == "3 facts are not folded into the pool, and no stream processor has ever read them."
    place = next(place for place, end in stage.log.end_offsets([CALLS]).items() if end)
    stage.log.commit_offsets(stage.log.settings.catalogue().streams_group, {place: 1})
    assert state.answer(0)["alarms"] == []
    now_s[0] += 60
    (stuck,) = state.answer(0)["alarms"]
    assert stuck["what"] == "2 facts are not folded into the pool, and no stream processor has moved for 60 s."
    stage.log.commit_offsets(stage.log.settings.catalogue().streams_group, {place: 3})
    assert state.answer(0)["alarms"] == []
    letters = [[alarm["what"] for alarm in state.answer(number)["alarms"]] for number in (2, None)]
    rest = "dead letters wait: records that nobody could read or fold."
    assert letters == [[f"2 {rest}"], [f"Very many {rest}"]]


def test_streams_are_stuck_since_somebody_saw_them_behind() -> None:
    """However long nobody looked: an hour without facts, and without a page that asks, is no hour in which they stood."""
    stage = DashboardStage(played("g", (1.0,), MINUTE_US))
    now_s = [100.0]
    state, group = LogState(stage.log, lambda: now_s[0]), stage.log.settings.catalogue().streams_group
    stage.log.commit_offsets(group, {place: end for place, end in stage.log.end_offsets([CALLS]).items() if end})
    assert (state.answer(0)["behind"], state.answer(0)["stuck_s"]) == (0, 0.0)
    now_s[0] += 3600
    stage.tell(*played("h", (1.0,), MINUTE_US))
    assert (state.answer(0)["behind"], state.answer(0)["stuck_s"], state.answer(0)["alarms"]) == (3, 0.0, [])
    now_s[0] += 20
    (stuck,) = state.answer(0)["alarms"]
    assert "has moved for 20 s" in stuck["what"]


def test_a_start_is_no_alarm() -> None:
    """Neither a worker that starts, nor a run before its first batch, however long that takes."""
    stage = WholeStage()
    begun = now_us() - 30 * MINUTE_US
    stage.report(observed.at(observed.started(), begun / 1e6), worker("w", now_us(), state="starting", version=None))
    stage.tell(*played("g0", (0.0, 1.0), begun))
    answer = overview(stage)
    assert answer["run"]["state"] == "starting"
    assert {alarm["level"] for alarm in answer["alarms"]} == {"note"}
    assert [alarm["what"] for alarm in answer["alarms"]] == [
        "Run run is starting: it has trained no batch yet.",
        "Worker w is starting.",
    ]


def test_a_slow_run_is_late_by_its_own_batches() -> None:
    """An hour between batches is its rhythm: forty minutes without one are nothing."""
    stage = scene(now_us() - 30 * MINUTE_US)
    assert any("Nobody trains" in alarm["what"] for alarm in overview(stage)["alarms"])
    slow = scene(now_us())
    last = observed.at(observed.trained(2, 1.0), (now_us() - 40 * MINUTE_US) / 1e6)
    for n in range(3, 9):
        slow.report(observed.at(observed.trained(n, 1.0), (now_us() - (40 + 60 * (8 - n)) * MINUTE_US) / 1e6))
    slow.report(last)
    assert not [alarm for alarm in overview(slow)["alarms"] if "trains" in alarm["what"]]


def test_an_unknown_run_is_a_sentence() -> None:
    """Problem details that name the command."""
    answer = overview(scene(), run="nope")
    assert (answer["status"], "claw runs list" in answer["detail"]) == (404, True)


@pytest.fixture
def session(browser: Browser) -> Iterator[tuple[WholeStage, BrowserSession]]:
    stage = scene()
    with stage.served() as url:
        one = BrowserSession(browser, url, viewport={"width": 1280, "height": 1000})
        yield stage, one
        one.close()


@pytest.mark.process
@pytest.mark.slow
def test_the_page_is_live_and_harmless(session: tuple[WholeStage, BrowserSession]) -> None:
    """Curves, stations, alarms, versions; a call appears without a reload; a point opens its batch; the run is in the address."""
    stage, one = session
    page = one.open("/overview", waits_for=".stations li")
    expect(page.locator(".alarms")).to_contain_text("3 groups lack judge/style")
    expect(page.locator(".alarms")).to_contain_text("is silent")
    expect(page.locator(".curves canvas")).to_have_count(4)
    expect(page.locator(".group-dots tbody tr")).to_have_count(1)
    stations = page.locator(".stations > li")
    expect(stations).to_have_count(6)
    expect(stations.nth(0)).to_contain_text("11 calls")
    expect(stations.nth(3)).to_contain_text("3 wait")
    stage.tell(*played("late", (1.0,), now_us()))
    expect(stations.nth(0)).to_contain_text("12 calls")
    assert page.evaluate("document.querySelectorAll('*').length") < 1500
    page.get_by_role("slider", name="return").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Batch 1 of run")).to_be_visible()
    page.go_back()
    page.get_by_label("Run", exact=True).select_option("all runs")
    until(page, "location.search === '?run=*'")
    expect(stations.nth(4)).to_contain_text("1 run")
    one.clean(page)


@pytest.mark.process
@pytest.mark.slow
def test_each_number_on_the_page_opens_as_many_rows(session: tuple[WholeStage, BrowserSession]) -> None:
    """As a person has it: the link is followed, and the list says the same number."""
    _, one = session
    page = one.open("/overview?run=run", waits_for=".stations li")
    numbers = page.locator(".stations a[href^='/explorer'], .reasons li:has(a[href^='/explorer'])")
    several = numbers.count()
    for at in range(several):
        text = numbers.nth(at).locator("b").inner_text()
        (numbers.nth(at) if numbers.nth(at).get_attribute("href") else numbers.nth(at).locator("a")).click()
        expect(page.locator(".count")).to_have_text(re.compile(rf"^{text} \w"))
        page.go_back()
        page.wait_for_selector(".stations li")
    assert several >= 7
    batches = page.locator(".stations").get_by_role("link", name="batches")
    text = batches.locator("b").inner_text()
    batches.click()
    page.wait_for_selector("tr.chosen")
    heads = page.get_by_label("All runs", exact=True).last.locator("thead > tr > *").all_inner_texts()
    expect(page.locator("tr.chosen > *").nth(heads.index("batches"))).to_have_text(text)
    page.goto(f"{one.url}/overview?run=*")
    runs = page.locator(".stations").get_by_role("link", name="run")
    text = runs.locator("b").inner_text()
    runs.click()
    expect(page.get_by_label("All runs", exact=True).last.locator("tbody > tr")).to_have_count(int(text))
    one.clean(page)
