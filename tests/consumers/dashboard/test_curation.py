"""View "Curation and labels" in a real Chromium: reviewed by keyboard, judged by filter, looked back on, and what agents' text cannot do."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from claw_r1.schemas.events import PreferenceGiven, RewardAssigned, StepCurated
from tests import facts
from tests.browser import browser
from tests.consumers.dashboard.stage import DashboardStage
from tests.consumers.feedback.stage import episode
from tests.sitting import PAYLOADS, Sitting

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]

Seat = tuple[DashboardStage, Sitting]


@pytest.fixture
def seat(browser: Browser) -> Iterator[Seat]:
    """Somebody before a dashboard of three trajectories in two groups."""
    stage = DashboardStage(
        episode("g", "t0", "Which animal?", "a cat", 1.0),
        episode("g", "t1", "Which animal?", "a dog", 0.0),
        episode("h", "u0", "How many spoons?", "three", 0.5),
    )
    with stage.served() as url:
        one = Sitting(browser, url)
        yield stage, one
        one.close()


def judging(page: Page) -> str:
    """The trajectory that the address or the list has open."""
    return page.locator(".sides h3 .word").first.inner_text()


def test_reviewed_by_keyboard(seat: Seat) -> None:
    """A digit judges and the next one is there; u takes it back, and it waits again."""
    stage, one = seat
    page = one.open("/curation", waits_for=".judge button")
    expect(page.locator("aside p")).to_contain_text("3 waiting, you judged 0 of 3")
    first = judging(page)
    page.keyboard.press("4")
    expect(page.locator("aside p")).to_contain_text("2 waiting, you judged 1 of 3")
    expect(page.locator(".sides h3 .word").first).not_to_have_text(first)
    (word,) = stage.words()
    assert isinstance(word, RewardAssigned)
    assert (word.trajectory_id, word.source, word.name, word.value) == (first, "human:ann", "overall", 0.75)
    second = judging(page)
    page.keyboard.press("j")
    expect(page.locator(".sides h3 .word").first).not_to_have_text(second)
    page.keyboard.press("u")
    expect(page.locator(".said")).to_contain_text("taken back: overall 0.75")
    expect(page.locator("aside p")).to_contain_text("3 waiting, you judged 0 of 3")
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.locator("h1")).to_have_text("Curation and labels")
    one.clean(page)


def test_a_call_is_curated_and_shown_at_once(seat: Seat) -> None:
    """Trainable, quality, tags and scores stand in the log as `claw pool curate` writes them; what is no number is refused with a sentence."""
    stage, one = seat
    page = one.open("/curation?g=g&t=t0", waits_for=".judge button")
    page.get_by_text("Curate 1 call").click()
    page.get_by_role("button", name="do not train").click()
    expect(page.get_by_role("button", name="do not train")).to_have_attribute("aria-pressed", "true")
    for label, text in (("Quality", "0.3"), ("Tags", "leak, odd"), ("Note", "copied"), ("Scores", "entropy@1=0.9")):
        page.get_by_label(label, exact=True).fill(text)
        page.get_by_label(label, exact=True).press("Enter")
        expect(page.locator(".said")).to_contain_text("u takes it back")
    page.get_by_label("Quality", exact=True).fill("much")
    page.get_by_label("Quality", exact=True).press("Enter")
    expect(page.locator(".said")).to_contain_text("quality is a number")
    events = [event for event in stage.words() if isinstance(event, StepCurated)]
    assert [(e.trainable, e.quality, e.tags, e.note, e.scores) for e in events] == [
        (False, None, None, None, {}),
        (None, 0.3, None, None, {}),
        (None, None, ("leak", "odd"), None, {}),
        (None, None, None, "copied", {}),
        (None, None, None, None, {"entropy@1": 0.9}),
    ]
    assert {(e.call_id, e.who) for e in events} == {("t0-0", "ann")}
    one.clean(page)


def test_an_act_that_fails_is_taken_off_the_screen(seat: Seat) -> None:
    """What was shown before the log had it goes, and the reason is said."""
    _, one = seat
    page = one.open("/curation?g=g&t=t0", waits_for=".judge button")
    page.get_by_text("Curate 1 call").click()
    page.route(
        "**/api/v1/curations", lambda route: route.fulfill(status=503, json={"detail": "the log does not answer"})
    )
    page.get_by_role("button", name="do not train").click()
    expect(page.locator(".said.problem")).to_contain_text("the log does not answer")
    expect(page.get_by_role("button", name="do not train")).to_have_attribute("aria-pressed", "false")


def test_two_are_compared(seat: Seat) -> None:
    """A digit prefers one of two members of a group."""
    stage, one = seat
    page = one.open("/curation?mode=pair", waits_for=".judge button")
    left, right = page.locator(".sides h3 .word").all_inner_texts()
    page.keyboard.press("5")
    expect(page.locator("aside p")).to_contain_text("0 waiting, you judged 1 of 1")
    (word,) = stage.words()
    assert isinstance(word, PreferenceGiven)
    assert (word.chosen.trajectory_id, word.rejected.trajectory_id, word.strength) == (right, left, 1.0)
    one.clean(page)


def test_by_filter_counts_first(seat: Seat) -> None:
    """The button is for exactly what was counted; the history has the act, and takes it back."""
    stage, one = seat
    page = one.open("/curation?tab=filter&group=g", waits_for="h2")
    page.get_by_label("Quality").fill("0.2")
    judge = page.get_by_role("button", name="Judge")
    expect(judge).to_be_disabled()
    page.get_by_role("button", name="Count", exact=True).first.click()
    expect(page.locator(".said").first).to_contain_text("would judge 2 steps")
    expect(page.locator(".command code")).to_have_text("claw pool curate --quality 0.2 --group=g")
    page.get_by_label("Note").fill("again")
    expect(judge).to_be_disabled()
    page.get_by_role("button", name="Count", exact=True).first.click()
    judge.click()
    expect(page.locator(".said").first).to_contain_text("judged 2 steps")
    assert [event.trajectory_id for event in stage.words()] == ["t0", "t1"]
    page.get_by_role("link", name="History").click()
    expect(page.locator("tbody tr")).to_contain_text("quality 0.2; note again")
    page.get_by_role("button", name="Take back").click()
    expect(page.locator("tbody tr.fallen")).to_have_count(1)
    one.clean(page)


def test_what_the_explorer_lists_is_judged(seat: Seat) -> None:
    """Its filter is carried on, of trajectories too: all their calls."""
    _, one = seat
    page = one.open("/explorer?kind=trajectories&reward_min=0.5", waits_for=".acts summary")
    page.locator(".acts summary").click()
    page.get_by_role("link", name="here, counted first").click()
    page.get_by_label("Quality").fill("1")
    page.get_by_role("button", name="Count", exact=True).first.click()
    expect(page.locator(".said").first).to_contain_text("would judge 2 steps")
    one.clean(page)


def test_an_operator_evicts(seat: Seat) -> None:
    """Counted first, then for good; another page hears of it."""
    _, one = seat
    other = one.open("/curation?tab=history&kind=evicted", waits_for="h1")
    expect(other.get_by_text("Nobody did any of this yet.")).to_be_visible()
    page = one.open("/curation?tab=filter", waits_for="h2")
    page.get_by_label("Ids of trajectories").fill("u0\nnobody")
    page.get_by_label("Why").fill("asked to")
    page.get_by_role("button", name="Count", exact=True).last.click()
    expect(page.locator(".said")).to_contain_text("the pool has no nobody: nothing would be evicted")
    page.get_by_label("Ids of trajectories").fill("u0")
    page.get_by_role("button", name="Count", exact=True).last.click()
    page.get_by_role("button", name="Evict 1").click()
    expect(page.locator(".said")).to_contain_text("evicted 1 trajectory")
    expect(other.locator("tbody tr")).to_contain_text("evicted: asked to")
    one.clean(page)


def test_payloads_are_text_everywhere(browser: Browser) -> None:
    """In ids, conversations, tags, notes, scorers' names and reasons: none runs, none is asked for, none is reported."""
    stage = DashboardStage()
    for number, payload in enumerate(PAYLOADS.values()):
        call = f"{payload}-0"
        stage.tell(*episode(f"g {payload}", payload, payload, payload, float(number), tags=(payload,)))
        stage.tell(
            facts.curated(
                f"g {payload}",
                payload,
                call,
                note=payload,
                tags=(payload,),
                who=f"p{number}",
                scores={f"{payload}@1": 1.0},
            ),
            facts.reward(
                f"g {payload}",
                payload,
                1.0,
                source="human:zoe",
                name=f"n{number}",
                metadata='{"comment": "<img src=x>"}',
            ),
        )
    with stage.served() as url:
        one = Sitting(browser, url)
        for address in (
            "/curation?overlap=9",
            "/curation?tab=history",
            "/curation?tab=filter&text=%3Cscript%3E",
            "/curation?tab=filter&group=%E2%80%AEx",
        ):
            page = one.open(address, waits_for="main h1")
            expect(page.locator("main .reading")).to_have_count(0)
            if "overlap" in address:
                for _ in PAYLOADS:
                    page.keyboard.press("j")
                    expect(page.locator(".sides h3")).to_have_count(1)
                    page.locator(".judge summary").click()
            one.clean(page)
        one.close()


@pytest.mark.parametrize(("address", "route"), [("/curation?mode=pair", "preferences"), ("/curation", "judgements")])
def test_a_second_key_before_the_first_is_in_the_log_judges_nothing(seat: Seat, address: str, route: str) -> None:
    """Whoever is quicker than the log would judge one subject twice, and leave the next one unjudged."""
    _, one = seat
    page = one.open(address, waits_for=".judge button")
    held: list[Route] = []
    page.route(f"**/api/v1/{route}", lambda asked: held.append(asked))  # Playwright sets attributes on what it is given
    with page.expect_request(f"**/api/v1/{route}"):
        page.keyboard.press("1")
    page.keyboard.press("5")
    held[0].continue_()
    expect(page.locator("aside p")).to_contain_text("you judged 1 of")
    page.keyboard.press("u")  # what a second key had asked for would be written before this
    expect(page.locator(".said")).to_contain_text("taken back")
    assert len([url for url in one.requests if url.endswith(f"/{route}")]) == 1
    one.clean(page)
