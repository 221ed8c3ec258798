"""View "Curation and labels" in a real Chromium: reviewed by keyboard, judged by filter, looked back on, and what agents' text cannot do."""

import os
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from claw_r1.consumers.dashboard.feedback import queues
from claw_r1.schemas.api_keys import new_key
from claw_r1.schemas.events import KeyRecorded, OutputEdited, PreferenceGiven, RewardAssigned, StepCurated
from claw_r1.schemas.topics import KEYS
from tests import facts, patience
from tests.browser import browser
from tests.browser_session import PAYLOADS, BrowserSession, until
from tests.consumers.dashboard.stage import DashboardStage, body, episode, said

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]

Seat = tuple[DashboardStage, BrowserSession]
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
AT_ONCE = "keys => { for (const key of keys) document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true})); }"
"""Keys pressed one by one are far enough apart on a slow machine that the second is of the next item."""
ACTIVE = ", ".join(f".sides {tag}" for tag in ("a", "img", "svg", "style", "script", "iframe"))


@pytest.fixture
def seat(browser: Browser) -> Iterator[Seat]:
    """Somebody before a dashboard of three trajectories in two groups."""
    stage = DashboardStage(
        episode("g", "t0", "Which animal?", "a cat", 1.0),
        episode("g", "t1", "Which animal?", "a dog", 0.0),
        episode("h", "u0", "How many spoons?", "three", 0.5),
    )
    with stage.served() as url:
        one = BrowserSession(browser, url)
        yield stage, one
        one.close()


def judging(page: Page) -> str:
    """The trajectory that the address or the list has open."""
    return page.locator(".sides h3 .word").first.inner_text()


def test_reviewed_by_keyboard(seat: Seat) -> None:
    """A digit judges and the next one is there; u takes it back, and it waits again."""
    stage, one = seat
    page = one.open("/curation", waits_for=".judge button")
    expect(page.locator("aside p").first).to_contain_text("3 waiting, you judged 0 of 3")
    first = judging(page)
    page.keyboard.press("4")
    expect(page.locator("aside p").first).to_contain_text("2 waiting, you judged 1 of 3")
    expect(page.locator(".sides h3 .word").first).not_to_have_text(first)
    (word,) = stage.words()
    assert isinstance(word, RewardAssigned)
    assert (word.trajectory_id, word.source, word.name, word.value) == (first, "human:ann", "overall", 0.75)
    second = judging(page)
    page.keyboard.press("j")
    expect(page.locator(".sides h3 .word").first).not_to_have_text(second)
    page.keyboard.press("u")
    expect(page.locator(".said")).to_contain_text("taken back: overall 4 of 5")
    expect(page.locator("aside p").first).to_contain_text("3 waiting, you judged 0 of 3")
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.locator("h1")).to_have_text("Curation and labels")
    one.clean(page)


def test_a_thumb_is_taken_back_and_shown_again(seat: Seat) -> None:
    """+ and - are thumbs, and the next one is there; k shows what was judged last with one's own word; u takes it back where it stands."""
    stage, one = seat
    page = one.open("/curation", waits_for=".judge button")
    first = judging(page)
    page.keyboard.press("+")
    expect(page.locator(".sides h3 .word").first).not_to_have_text(first)
    expect(page.locator("aside p").first).to_contain_text("2 waiting, you judged 1 of 3")
    page.keyboard.press("k")
    expect(page.locator(".sides h3 .word").first).to_have_text(first)
    expect(page.locator(".judge .words")).to_contain_text("thumb up")
    page.keyboard.press("-")
    expect(page.locator(".sides h3 .word").first).not_to_have_text(first)
    page.keyboard.press("u")
    expect(page.locator(".said")).to_contain_text("taken back: thumb down")
    expect(page.locator(".sides h3 .word").first).to_have_text(first)
    expect(page.locator(".judge .words")).to_have_count(0)
    given = [event for event in stage.words() if isinstance(event, RewardAssigned)]
    assert [(event.trajectory_id, event.name, event.value) for event in given] == [
        (first, "thumb", 1.0),
        (first, "thumb", 0.0),
        (first, "thumb", None),
    ]
    one.clean(page)


def test_undo_waits_its_turn_and_a_second_judgement_does_not(seat: Seat) -> None:
    """Keys pressed at once: the second + would be of what nobody has seen; u takes back what the first said, and shows it."""
    stage, one = seat
    page = one.open("/curation", waits_for=".judge button")
    first = judging(page)
    page.evaluate(AT_ONCE, "++u")
    expect(page.locator(".said")).to_contain_text("taken back: thumb up")
    expect(page.locator(".sides h3 .word").first).to_have_text(first)
    given = [event for event in stage.words() if isinstance(event, RewardAssigned)]
    assert [(event.trajectory_id, event.value) for event in given] == [(first, 1.0), (first, None)]


def test_what_is_skipped_comes_again_when_it_is_asked_for(seat: Seat) -> None:
    """s goes on without a word in the log; in the end the page says how many were skipped."""
    stage, one = seat
    page = one.open("/curation", waits_for=".judge button")
    skipped = set()
    for _ in range(3):
        skipped.add(judging(page))
        page.keyboard.press("s")
        if len(skipped) < 3:
            expect(page.locator(".sides h3 .word").first).not_to_have_text(list(skipped)[-1])
            page.wait_for_function(
                "seen => !seen.includes(document.querySelector('.sides h3 .word')?.textContent ?? seen[0])",
                arg=list(skipped),
            )
    assert skipped == {"t0", "t1", "u0"}
    page.get_by_role("button", name="Go through what you skipped (3)").click()
    expect(page.locator(".sides h3 .word").first).to_be_visible()
    assert stage.words() == []
    one.clean(page)


def test_behind_what_is_skipped_the_rest_waits(browser: Browser) -> None:
    """However many were skipped: they stay open, and stand before all others."""
    stage = DashboardStage(*(episode("g", f"t{number:02}", "?", "!", 0.0) for number in range(52)))
    with stage.served() as url:
        one = BrowserSession(browser, url)
        page = one.open("/curation", waits_for=".judge button")
        skipped = set()
        for _ in range(51):
            skipped.add(judging(page))
            page.keyboard.press("s")
            until(page, f"!{sorted(skipped)}.includes(document.querySelector('.sides h3 .word')?.textContent)")
            page.wait_for_selector(".sides h3 .word")
        assert judging(page) not in skipped
        page.keyboard.press("s")
        expect(page.get_by_role("button", name="Go through what you skipped (52)")).to_be_visible()
        one.clean(page)
        one.close()


def test_a_comment_and_a_better_reply(seat: Seat) -> None:
    """c and e open a field that has the keyboard; Ctrl Enter saves; keys typed there judge nothing."""
    stage, one = seat
    page = one.open("/curation?g=g&t=t0", waits_for=".judge button")
    page.keyboard.press("c")
    expect(page.locator("textarea")).to_be_focused()
    page.keyboard.type("u + 1 is this a cat?")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".judge .words")).to_contain_text("is this a cat?")
    expect(page.locator("textarea")).to_have_count(0)  # saved: the keyboard is the page's again
    page.keyboard.press("e")
    expect(page.locator("textarea")).to_be_focused()
    expect(page.locator("textarea")).to_have_value("a cat")
    page.keyboard.press("Control+a")
    page.keyboard.type("a lynx")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".judge .words")).to_contain_text("a better reply")
    comment, edit = stage.words()
    assert isinstance(comment, RewardAssigned)
    assert comment.value is None
    assert isinstance(edit, OutputEdited)
    assert '"a lynx"' in (edit.message or "")
    one.clean(page)


def test_others_are_heard_after_ones_own_word(seat: Seat) -> None:
    """What another person and a scorer said stands below the conversation once this person has judged, not before."""
    stage, one = seat
    stage.tell(
        facts.reward("g", "t0", 0.25, source="human:zoe", name="overall"),
        facts.reward("g", "t0", 0.5, source="judge", name="style"),
    )
    page = one.open("/curation?g=g&t=t0&overlap=2", waits_for=".judge button")
    expect(page.locator("aside p").nth(1)).to_contain_text("zoe 1")
    expect(page.locator(".sides .words")).to_have_count(0)
    page.keyboard.press("3")
    expect(page.locator(".sides h3 .word").first).not_to_have_text("t0")
    page.keyboard.press("k")
    expect(page.locator(".sides .words").first).to_contain_text("overall 2 of 5 zoe")
    expect(page.locator(".sides .words").last).to_contain_text("judge/style 0.5")
    one.clean(page)


def test_a_lost_session_does_not_change_who_speaks(seat: Seat) -> None:
    """The name that was typed is signed in again before the judgement is repeated, never the login's."""
    stage, one = seat
    page = one.open("/curation", waits_for=".judge button")
    page.on("dialog", lambda dialog: dialog.accept("bob"))
    page.get_by_role("button", name="Another name").click()
    expect(page.locator(".who .word")).to_have_text("bob")
    expect(page.locator(".judge .row button").first).to_be_enabled()
    one.context.clear_cookies()
    page.keyboard.press("+")
    expect(page.locator("aside p").first).to_contain_text("2 waiting, you judged 1 of 3")
    assert {getattr(event, "source", "") for event in stage.words()} == {"human:bob"}


def test_a_tab_follows_who_is_signed_in(seat: Seat) -> None:
    """Another tab signed somebody else in: with the next answer this one begins anew under that name, which its next word has."""
    stage, one = seat
    page = one.open("/curation", waits_for=".judge button")
    page.evaluate("""fetch('/api/v1/session',
        {method: 'POST', headers: {'content-type': 'application/json'}, body: '{"who": "bob"}'})""")
    stage.tell(*episode("h", "u1", "How many forks?", "two"))
    expect(page.locator(".who .word")).to_have_text("bob")
    expect(page.locator(".judge .row button").first).to_be_enabled()
    page.keyboard.press("+")
    expect(page.locator("aside p").first).to_contain_text("3 waiting, you judged 1 of 4")
    assert {getattr(event, "source", "") for event in stage.words()} == {"human:bob"}


def test_signing_out_leaves_nothing_to_see(browser: Browser) -> None:
    """With keys: the form is there again, and a sign-in shows what is asked of whoever signed in."""
    stage = DashboardStage(episode("a", "a0", "Which animal?", "a cat"))
    secret, entry = new_key("annotator")
    record = KeyRecorded(envelope=facts.envelope(), digest=entry.partition(":")[2], name="ann", role="annotator")
    stage.log.producer().publish_now(KEYS, record.digest.encode(), record)
    with stage.served(keys=True) as url:
        one = BrowserSession(browser, url)
        page = one.open("/curation", waits_for="form.sign-in")
        for _ in range(2):
            page.locator("[type=password]").fill(secret)
            page.keyboard.press("Enter")
            expect(page.locator(".sides article")).to_have_count(1)
            page.get_by_role("button", name="Sign out").click()
            expect(page.locator("form.sign-in")).to_be_visible()
            expect(page.locator("article")).to_have_count(0)
        one.close()


def test_bare_words_of_a_filter_are_one_text(seat: Seat) -> None:
    """As typed, words apart by spaces are looked for together."""
    page = seat[1].open("/curation", waits_for=".judge button")
    page.get_by_label("Filter").fill("group=g  is it")
    page.keyboard.press("Enter")
    page.wait_for_url("**/curation?*text=is+it*")


def test_reload_and_second_tab_agree(seat: Seat) -> None:
    """The address names what is shown; what one tab says the other shows, without a reload."""
    _, one = seat
    page = one.open("/curation?order=newest&g=g&t=t1", waits_for=".judge button")
    page.reload()
    expect(page.locator(".sides h3 .word").first).to_have_text("t1")
    second = one.open(page.url.removeprefix(one.url), waits_for=".judge button")
    page.keyboard.press("-")
    expect(second.locator(".judge .words")).to_contain_text("thumb down")
    expect(second.locator("aside p").first).to_contain_text("2 waiting")
    page.go_back()
    expect(page.locator(".sides h3 .word").first).to_have_text("t1")
    one.clean(page)


def test_what_comes_first_now_takes_nobodys_place(seat: Seat) -> None:
    """Whoever is about to press a key judges what they see, although the order names another one first meanwhile."""
    stage, one = seat
    page = one.open("/curation?order=newest", waits_for=".judge button")
    seen = judging(page)
    page.locator(".judge").evaluate("element => { element.mark = true; }")
    last = facts.completed("later", "newest", calls=1, envelope=facts.envelope(at_us=9))
    stage.tell(said("later", "newest", "Which animal?", "a cow"), last)
    expect(page.locator(".queue li").first).to_have_text("newest")
    assert judging(page) == seen
    assert page.locator(".judge").evaluate("element => element.mark")
    page.keyboard.press("1")
    expect(page.locator(".sides h3 .word").first).not_to_have_text(seen)
    patience.until(stage.words)  # the page goes on before the word is in the log
    (word,) = stage.words()
    assert isinstance(word, RewardAssigned)
    assert word.trajectory_id == seen


def test_what_changes_before_a_page_listens_is_shown_too(seat: Seat) -> None:
    """Its first answers are there, its stream of changes is not yet: it follows from where it stood before them."""
    stage, one = seat
    page, held = one.tab(), list[Route]()
    page.route("**/api/v1/live*", lambda asked: held.append(asked))  # Playwright sets attributes on what it is given
    page.goto(f"{one.url}/curation?order=newest")
    page.wait_for_selector(".judge button")
    before = stage.live.position
    last = facts.completed("later", "newest", calls=1, envelope=facts.envelope(at_us=9))
    stage.tell(said("later", "newest", "Which animal?", "a cow"), last)
    patience.until(lambda: stage.live.position != before)
    held[0].continue_()
    expect(page.locator(".queue li").first).to_have_text("newest")


def test_a_queue_that_was_made_a_moment_ago_is_made_anew(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last change of a pool finds it too new to be read again: the page asks again by itself."""
    monkeypatch.setattr(queues, "SHARE", 1000)  # a queue lasts for a second or two
    stage, one = seat
    page = one.open("/curation?order=newest", waits_for=".judge button")
    last = facts.completed("later", "newest", calls=1, envelope=facts.envelope(at_us=9))
    stage.tell(said("later", "newest", "Which animal?", "a cow"), last)
    expect(page.locator(".queue li").first).to_have_text("newest")


def test_what_agents_do_now_appears(browser: Browser) -> None:
    """An empty queue fills by itself."""
    stage = DashboardStage()
    with stage.served() as url:
        one = BrowserSession(browser, url)
        page = one.open("/curation", waits_for=".subject p")
        expect(page.locator(".subject")).to_contain_text("No trajectory that is over")
        stage.tell(*episode("new", "n0", "Which animal?", "a cat"))
        expect(page.locator(".sides article")).to_contain_text("a cat")
        one.clean(page)
        one.close()


def test_a_call_is_curated_and_shown_at_once(seat: Seat) -> None:
    """Trainable, quality, tags and scores stand in the log as `claw pool curate` writes them; what is no number is refused with a sentence."""
    stage, one = seat
    page = one.open("/curation?g=g&t=t0", waits_for=".judge button")
    page.get_by_role("button", name="do not train").click()
    expect(page.get_by_role("button", name="do not train")).to_have_attribute("aria-pressed", "true")
    for label, text in (("Quality", "0.3"), ("Tags", "leak, odd"), ("Note", "copied"), ("Scores", "entropy@1=0.9")):
        page.get_by_label(label, exact=True).fill(text)
        page.get_by_label(label, exact=True).press("Enter")
        expect(page.locator(".said")).to_have_text(re.compile(f"{label}.*u takes it back", re.IGNORECASE))
    quality = page.get_by_label("Quality", exact=True)
    held: list[Route] = []
    page.route("**/api/v1/curations", lambda route: held.append(route))  # playwright takes no built-in
    for text in ("0.4", "much"):
        quality.fill(text)
        quality.press("Enter")
    patience.until(lambda: held, step=lambda: page.wait_for_timeout(20))
    held[0].continue_()  # a write that is acknowledged after the next one was refused does not stand over why
    expect(page.locator(".said")).to_contain_text("quality is a number")

    def curations() -> list[StepCurated]:
        return [event for event in stage.words() if isinstance(event, StepCurated)]

    patience.until(lambda: len(curations()) == 6)  # what was said of one act stands there until the next is written
    events = curations()
    assert [(e.trainable, e.quality, e.tags, e.note, e.scores) for e in events] == [
        (False, None, None, None, {}),
        (None, 0.3, None, None, {}),
        (None, None, ("leak", "odd"), None, {}),
        (None, None, None, "copied", {}),
        (None, None, None, None, {"entropy@1": 0.9}),
        (None, 0.4, None, None, {}),
    ]
    expect(page.locator(".said")).to_contain_text("quality is a number")
    assert {(e.call_id, e.who) for e in events} == {("t0-0", "ann")}
    one.clean(page)


def test_an_act_that_fails_is_taken_off_the_screen(seat: Seat) -> None:
    """What was shown before the log had it goes, and the reason is said."""
    _, one = seat
    page = one.open("/curation?g=g&t=t0", waits_for=".judge button")
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
    assert sorted(page.locator("mark").all_inner_texts()) == ["cat", "dog"]
    page.keyboard.press("5")
    expect(page.locator("aside p").first).to_contain_text("0 waiting, you judged 1 of 1")
    expect(page.locator(".subject")).to_contain_text("Nothing more waits")
    (word,) = stage.words()
    assert isinstance(word, PreferenceGiven)
    assert (word.chosen.trajectory_id, word.rejected.trajectory_id, word.strength) == (right, left, 1.0)
    page.keyboard.press("u")
    expect(page.locator(".sides article")).to_have_count(2)
    page.keyboard.press("x")
    expect(page.locator(".subject")).to_contain_text("Nothing more waits")

    def outcomes() -> list[str]:
        return [event.outcome for event in stage.words() if isinstance(event, PreferenceGiven)]

    patience.until(lambda: len(outcomes()) > 2)  # the page goes on before the word is in the log
    assert outcomes()[1:] == ["withdrawn", "both_bad"]
    one.clean(page)


def test_what_two_share_is_folded(browser: Browser) -> None:
    """A pair begins where its sides part; the turns before that come on demand."""
    _, request = body({"messages": [{"role": "system", "content": "be short"}, {"role": "user", "content": "Which?"}]})
    stage = DashboardStage()
    for name in ("cat", "dog"):
        reply, _ = body({"choices": [{"index": 0, "message": {"role": "assistant", "content": name}}]})
        call = facts.call("g", name, f"{name}-0", request=request, response_body=reply)
        stage.tell(call, facts.completed("g", name, calls=1))
    with stage.served() as url:
        one = BrowserSession(browser, url)
        page = one.open("/curation?mode=pair", waits_for=".judge button")
        expect(page.locator(".sides .turn")).to_have_count(2)
        page.get_by_role("button", name="show turns that both share (2)").first.click()
        expect(page.locator(".sides .turn")).to_have_count(4)
        expect(page.locator(".sides article").first).to_contain_text("be short")
        one.clean(page)
        one.close()


def test_a_very_long_text_is_bounded(browser: Browser) -> None:
    """A megabyte without a space, and as many characters that nobody sees: the page stays usable and narrow."""
    replies = ("x" * 1_000_000, "\u202e\x00" * 500_000)
    stage = DashboardStage(*(episode("a", f"a{n}", "Which?", each) for n, each in enumerate(replies)))
    with stage.served() as url:
        one = BrowserSession(browser, url, viewport={"width": 360, "height": 700})
        page = one.open("/curation?mode=pair", waits_for=".judge button")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("document.querySelectorAll('*').length") < 5000
        page.get_by_role("button", name="more characters").first.click()
        assert page.evaluate("document.querySelectorAll('*').length") < 5000
        page.keyboard.press("3")
        expect(page.locator(".subject")).to_contain_text("Nothing more waits")
        one.clean(page)
        one.close()


@pytest.mark.parametrize("mode", ["single", "pair"])
def test_it_fits(browser: Browser, tmp_path: Path, mode: str) -> None:
    """On a phone and a desk, light and dark: nothing is wider than the screen, and what judges is on it. Keeps a picture."""
    replies = [
        f"Take the {each} train; it leaves at nine and is there by noon.\n\nBring water." for each in ("early", "late")
    ]
    question = "How do I get from Bern to Lugano before lunch? I have two suitcases and a dog."
    stage = DashboardStage(*(episode("trip", f"trip{n}", question, each) for n, each in enumerate(replies)))
    folder = Path(os.environ.get("CLAW_SCREENSHOTS", tmp_path))
    with stage.served() as url:
        one = BrowserSession(browser, url)
        page = one.open(f"/curation?mode={mode}", waits_for=".judge button")
        for width, scheme in product((360, 1280), SCHEMES):
            page.set_viewport_size({"width": width, "height": 760})
            page.emulate_media(color_scheme=scheme)
            until(page, f"innerWidth === {width} && document.documentElement.scrollWidth <= {width}")
            page.locator(".sides").scroll_into_view_if_needed()
            for button in page.locator(".judge > .row button").all():
                box = button.bounding_box()
                assert box is not None
                assert 0 <= box["x"] <= box["x"] + box["width"] <= width
                assert box["y"] + box["height"] <= 760
            page.screenshot(path=folder / f"curation-{mode}-{width}-{scheme}.png")
        one.clean(page)
        one.close()


def test_by_filter_counts_first(seat: Seat) -> None:
    """The button is for exactly what was counted; the history has the act, and takes it back."""
    stage, one = seat
    page = one.open("/curation?tab=filter&group=g", waits_for="h2")
    page.get_by_label("Quality").fill("0.2")
    page.get_by_label("Note").fill("it's $(x)\x1b[2J")
    judge = page.get_by_role("button", name="Judge")
    expect(judge).to_be_disabled()
    page.get_by_role("button", name="Count", exact=True).first.click()
    expect(page.locator(".said").first).to_contain_text("would judge 2 steps")
    expect(page.locator(".command code")).to_have_text(
        r"claw pool curate --quality 0.2 $'--why=it\u0027s $(x)\u001b[2J' --group=g"
    )
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


def test_another_kind_of_acts_begins_with_the_newest(browser: Browser) -> None:
    """The history's place among the older ones is of the kind that was shown."""
    judged = [
        facts.reward("g", "t0", source="human:zoe", name=f"slot{n}", envelope=facts.envelope(at_us=n))
        for n in range(52)
    ]
    stage = DashboardStage(episode("g", "t0", "Which animal?", "a cat", 1.0), judged)
    with stage.served() as url:
        one = BrowserSession(browser, url)
        page = one.open("/curation?tab=history", waits_for="tbody tr")
        page.get_by_role("button", name="older ones").click()
        expect(page.locator("tbody tr")).to_have_count(2)
        page.get_by_label("Show").select_option("judged")
        expect(page.locator("tbody tr")).to_have_count(50)
        one.clean(page)
        one.close()


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
    texts = []
    with stage.served() as url:
        one = BrowserSession(browser, url)
        for address in (
            "/curation?overlap=9",
            "/curation?tab=history",
            "/curation?tab=filter&text=%3Cscript%3E",
            "/curation?tab=filter&group=%E2%80%AEx",
        ):
            page = one.open(address, waits_for="main h1")
            expect(page.locator("main .reading")).to_have_count(0)
            if "overlap" in address:
                for number in range(len(PAYLOADS)):
                    expect(page.locator(".queue li").nth(number).locator("a")).to_have_attribute("aria-current", "true")
                    expect(page.locator(".sides h3")).to_have_count(1)
                    page.locator(".judge summary").click()
                    texts.append(page.locator("main").inner_text())
                    assert page.locator(ACTIVE).count() == 0
                    page.keyboard.press("j")
            one.clean(page)
        one.close()
    text = "\n".join(texts)
    assert not set(text) & set("\x00\x1b\x07\u202e\u2066\u2069\u200b\U000e0041")
    plain = [payload for name, payload in PAYLOADS.items() if name not in ("bidi", "control")]
    assert [part for part in (*plain, "U+202E", "U+200B", "U+E0041", "U+0000", "U+001B[31m") if part not in text] == []


@pytest.mark.parametrize(("mode", "route"), [("pair", "preferences"), ("single", "judgements")])
def test_a_second_key_before_the_first_is_in_the_log_is_for_the_next(browser: Browser, mode: str, route: str) -> None:
    """The next one comes at once, and two keys judge two subjects, while the log takes its time; what the log refuses comes back."""
    stage = DashboardStage(*(episode(f"g{n // 2}", f"t{n}", "Which?", f"this {n}") for n in range(6)))
    with stage.served() as url:
        one = BrowserSession(browser, url)
        page = one.open(f"/curation?mode={mode}", waits_for=".judge button")
        held: list[Route] = []
        page.route(
            f"**/api/v1/{route}", lambda asked: held.append(asked)
        )  # Playwright sets attributes on what it is given
        shown: list[str] = []
        for key in ("1", "5"):
            expect(page.locator(".sides h3 .word").first).not_to_have_text(shown[-1] if shown else "")
            shown.append(page.locator(".sides h3 .word").first.inner_text())
            page.keyboard.press(key)
        expect(page.locator(".sides h3 .word").first).not_to_have_text(shown[-1])
        with page.expect_request(f"**/api/v1/{route}"):  # the second one, behind the first
            held[0].continue_()
        expect(page.locator("aside p").first).to_contain_text("you judged 1 of")
        held[1].fulfill(status=503, json={"detail": "the log does not answer"})
        expect(page.locator(".said.problem")).to_contain_text("the log does not answer")
        page.keyboard.press("k")  # it stands in the queue again
        judged = [
            event
            for event in stage.words()
            if isinstance(event, PreferenceGiven | RewardAssigned) and event.source == "human:ann"
        ]
        assert len(judged) == 1
        expect(page.locator("aside p").first).to_contain_text("2 waiting" if mode == "pair" else "5 waiting")
        one.close()
