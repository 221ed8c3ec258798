"""The feedback page in a real Chromium: what a person does on it, and what agents' text cannot do to it."""

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from claw_r1.schemas.api_keys import new_key
from claw_r1.schemas.events import Event, KeyRecorded, OutputEdited, PreferenceGiven, RewardAssigned
from claw_r1.schemas.topics import KEYS
from tests import facts, patience
from tests.browser import browser
from tests.consumers.feedback.stage import Stage, episode
from tests.sitting import PAYLOADS, Sitting, until

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]
ACTIVE = ", ".join(f"article {tag}" for tag in ("a", "img", "svg", "style", "script", "iframe"))
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture
def sitting(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Any]:
    """`sitting(stage, **options)`: somebody at a browser before a page on that stage."""
    closing: list[Any] = []

    def begin(stage: Stage, *, keys: bool = False, **options: Any) -> Sitting:
        server = stage.served(keys=keys)
        closing.append(lambda: server.__exit__(None, None, None))
        one = Sitting(browser, server.__enter__(), **options)
        closing.append(one.close)
        return one

    yield begin
    for close in reversed(closing):
        close()


def group(name: str, *replies: str, question: str = "Which animal is it?") -> list[Event]:
    return [each for n, reply in enumerate(replies) for each in episode(name, f"{name}{n}", question, reply, float(n))]


def name_of(page: Page) -> str:
    return page.locator("article header .word").first.inner_text()


def step(page: Page) -> None:
    """On to the next subject."""
    idle(page)
    before = name_of(page)
    page.keyboard.press("j")
    patience.until(lambda: name_of(page) != before, "the next one is shown")


def idle(page: Page) -> None:
    """Waits until something is there to be judged, and what was done before is over: a judgement during another act is not heard."""
    expect(page.locator(".votes button").first).to_be_enabled()


def write(page: Page, key: str) -> None:
    """Opens a field by its key, and waits until it has the keyboard."""
    idle(page)
    page.keyboard.press(key)
    expect(page.locator("textarea")).to_be_focused()


def test_judged_by_keyboard(sitting: Any) -> None:
    """A key judges, the event stands in claw.rewards, and the next one is there; z takes it back and shows it again."""
    stage = Stage(group("a", "a cat"), group("b", "a dog"), group("c", "a fox"))
    one = sitting(stage)
    page = one.open()
    first = name_of(page)
    idle(page)
    page.keyboard.press("u")
    expect(page.locator("article header .word").first).not_to_have_text(first)
    second = name_of(page)
    idle(page)
    page.keyboard.press("4")
    expect(page.locator(".progress")).to_contain_text("1 waiting, you judged 2 of 3")
    up, score = stage.words()
    assert isinstance(up, RewardAssigned)
    assert isinstance(score, RewardAssigned)
    assert (up.trajectory_id, up.source, up.name, up.value) == (first, "human:ann", "thumb", 1.0)
    assert (score.trajectory_id, score.name, score.value) == (second, "overall", 0.75)
    expect(page.locator("article header .word").first).not_to_have_text(second)
    idle(page)
    page.keyboard.press("z")
    expect(page.locator("article header .word").first).to_have_text(second)
    expect(page.locator(".toast")).to_contain_text("taken back: overall 4 of 5")
    page.keyboard.press("k")
    expect(page.locator("article header .word").first).to_have_text(first)
    expect(page.locator(".words")).to_contain_text("thumb up")
    one.clean(page)


AT_ONCE = "keys => { for (const key of keys) document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true})); }"
"""Keys pressed one by one are far enough apart on a slow machine that the second is of the next item."""


def test_undo_waits_its_turn_and_a_second_judgement_does_not(sitting: Any) -> None:
    """Keys pressed at once: the second u would be of what nobody has seen; z takes back what the first said."""
    stage = Stage(group("a", "a cat"), group("b", "a dog"))
    one = sitting(stage)
    page = one.open()
    first = name_of(page)
    idle(page)
    page.evaluate(AT_ONCE, "uuz")
    expect(page.locator(".toast")).to_contain_text("taken back: thumb up")
    expect(page.locator("article header .word").first).to_have_text(first)
    given = [event for event in stage.words() if isinstance(event, RewardAssigned)]
    assert [(event.trajectory_id, event.value) for event in given] == [(first, 1.0), (first, None)]


def test_a_lost_session_does_not_change_who_speaks(sitting: Any) -> None:
    """The name that was typed is signed in again before the judgement is repeated, never the login's."""
    stage = Stage(group("a", "a cat"), group("b", "a dog"))
    one = sitting(stage)
    page = one.open()
    page.on("dialog", lambda dialog: dialog.accept("bob"))
    page.get_by_title("judge under another name").click()
    expect(page.get_by_title("judge under another name")).to_have_text("bob")
    idle(page)
    one.context.clear_cookies()
    page.keyboard.press("u")
    expect(page.locator(".progress")).to_contain_text("1 waiting, you judged 1 of 2")
    assert {getattr(event, "source", "") for event in stage.words()} == {"human:bob"}


def test_a_tab_follows_who_is_signed_in(sitting: Any) -> None:
    """Another tab signed somebody else in: this one begins anew under that name, which its next word has."""
    stage = Stage(group("a", "a cat"), group("b", "a dog"))
    one = sitting(stage)
    page = one.open()
    page.evaluate("""fetch('/api/v1/session',
        {method: 'POST', headers: {'content-type': 'application/json'}, body: '{"who": "bob"}'})""")
    expect(page.get_by_title("judge under another name")).to_have_text("bob")
    idle(page)
    page.keyboard.press("u")
    expect(page.locator(".progress")).to_contain_text("1 waiting, you judged 1 of 2")
    assert {getattr(event, "source", "") for event in stage.words()} == {"human:bob"}


def test_signing_out_leaves_nothing_to_see(sitting: Any) -> None:
    """With keys: the form is there again, and a sign-in shows what is asked of whoever signed in."""
    stage = Stage(group("a", "a cat"))
    secret, entry = new_key("annotator")
    record = KeyRecorded(envelope=facts.envelope(), digest=entry.partition(":")[2], name="ann", role="annotator")
    stage.log.producer().publish_now(KEYS, record.digest.encode(), record)
    one = sitting(stage, keys=True)
    page = one.open(waits_for="form.sign-in")
    for _ in range(2):
        page.locator("[type=password]").fill(secret)
        page.keyboard.press("Enter")
        expect(page.locator("article")).to_have_count(1)
        page.get_by_text("Sign out").click()
        expect(page.locator("form.sign-in")).to_be_visible()
        expect(page.locator("article")).to_have_count(0)


def test_bare_words_of_a_filter_are_one_text(sitting: Any) -> None:
    """As typed, words apart by spaces are looked for together."""
    page = sitting(Stage(group("a", "a cat"))).open()
    page.locator(".settings summary").click()
    page.locator("[name=filter]").fill("group=a  is it")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?*text=is+it*")


def test_a_comment_and_a_better_reply(sitting: Any) -> None:
    """c and e open a field that has the keyboard; Ctrl Enter saves; keys typed there judge nothing."""
    stage = Stage(group("a", "a cat"))
    one = sitting(stage)
    page = one.open()
    write(page, "c")
    page.keyboard.type("u d 1 is this a cat?")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".words")).to_contain_text("is this a cat?")
    expect(page.locator("textarea")).to_have_count(0)  # saved: the keyboard is the page's again
    write(page, "e")
    expect(page.locator("textarea")).to_have_value("a cat")
    page.keyboard.press("Control+a")
    page.keyboard.type("a lynx")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".words")).to_contain_text("a better reply")
    comment, edit = stage.words()
    assert isinstance(comment, RewardAssigned)
    assert comment.value is None
    assert isinstance(edit, OutputEdited)
    assert '"a lynx"' in (edit.message or "")
    one.clean(page)


def test_two_side_by_side(sitting: Any) -> None:
    """What differs is marked, and 5 prefers the right one clearly."""
    stage = Stage(group("a", "it is surely a cat", "it is surely a dog"))
    one = sitting(stage)
    page = one.open("/?mode=pair")
    expect(page.locator("article")).to_have_count(2)
    assert sorted(page.locator("mark").all_inner_texts()) == ["cat", "dog"]
    right = page.locator("article header .word").nth(1).inner_text()
    idle(page)
    page.keyboard.press("5")
    expect(page.locator("main")).to_contain_text("Nothing more waits")
    (event,) = stage.words()
    assert isinstance(event, PreferenceGiven)
    assert (event.chosen.trajectory_id, event.outcome, event.strength) == (right, "chosen", 1.0)
    page.keyboard.press("z")
    expect(page.locator("article")).to_have_count(2)
    idle(page)
    page.keyboard.press("x")
    expect(page.locator("main")).to_contain_text("Nothing more waits")
    assert [event.outcome for event in stage.words() if isinstance(event, PreferenceGiven)][1:] == [
        "withdrawn",
        "both_bad",
    ]
    one.clean(page)


def test_reload_and_second_tab_agree(sitting: Any) -> None:
    """The address names what is shown; what one tab says the other shows, without a reload."""
    stage = Stage(group("a", "a cat"), group("b", "a dog"))
    one = sitting(stage)
    page = one.open("/?order=newest")
    first = name_of(page)
    page.reload()
    expect(page.locator("article header .word").first).to_have_text(first)
    second = one.open(page.url.removeprefix(one.url))
    expect(second.locator("article header .word").first).to_have_text(first)
    idle(page)
    page.keyboard.press("d")
    expect(second.locator(".words")).to_contain_text("thumb down")
    expect(second.locator(".progress")).to_contain_text("1 waiting")
    page.go_back()
    one.clean(page)


def test_what_agents_do_now_appears(sitting: Any) -> None:
    """An empty queue fills by itself."""
    stage = Stage()
    one = sitting(stage)
    page = one.open()
    expect(page.locator("main")).to_contain_text("No trajectory that is over")
    stage.tell(*group("new", "a cat"))
    expect(page.locator("article")).to_contain_text("a cat")
    one.clean(page)


def test_text_of_agents_is_text(sitting: Any) -> None:
    """In ids, tags, task, question, reply and a comment: shown, and nothing of it runs, loads or turns the line around."""
    stage = Stage()
    for payload in PAYLOADS.values():
        for n in "ab":
            place = (f"g{payload}", f"{n}{payload}")
            about = facts.started(*place, tags=(payload,), task=payload)
            stage.tell(about, *episode(*place, payload, f"{payload} {n}", 1.0))
    one = sitting(stage)
    page = one.open("/?order=newest")
    write(page, "c")
    page.keyboard.insert_text(PAYLOADS["script"])
    page.keyboard.press("Control+Enter")
    expect(page.locator(".words")).to_contain_text("<script>")
    texts = []
    for number in range(2 * len(PAYLOADS)):
        if number:
            step(page)
        expect(page.locator("article .tag")).to_be_visible()
        page.locator("details", has_text="task").locator("summary").click()
        texts.append(page.locator("main").inner_text())
    text = "\n".join(texts)
    assert not set(text) & set("\x00\x1b\x07\u202e\u2066\u2069\u200b\U000e0041")
    plain = [payload for name, payload in PAYLOADS.items() if name not in ("bidi", "control")]
    assert [part for part in (*plain, "U+202E", "U+200B", "U+E0041", "U+0000", "U+001B[31m") if part not in text] == []
    page.goto(f"{one.url}/?mode=pair")
    for number in range(len(PAYLOADS)):
        if number:
            step(page)
        expect(page.locator("article")).to_have_count(2)
        assert page.locator(ACTIVE).count() == 0
    one.clean(page)


def test_a_very_long_text_is_bounded(sitting: Any) -> None:
    """A megabyte without a space, and as many characters that nobody sees: the page stays usable and narrow."""
    stage = Stage(group("a", "x" * 1_000_000, "\u202e\x00" * 500_000))
    one = sitting(stage, viewport={"width": 360, "height": 700})
    page = one.open("/?mode=pair")
    expect(page.locator("article")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.querySelectorAll('*').length") < 5000
    page.get_by_role("button", name="more characters").first.click()
    assert page.evaluate("document.querySelectorAll('*').length") < 5000
    idle(page)
    page.keyboard.press("3")
    expect(page.locator("main")).to_contain_text("Nothing more waits")
    one.clean(page)


@pytest.mark.parametrize("mode", ["single", "pair"])
def test_it_fits(sitting: Any, tmp_path: Path, mode: str) -> None:
    """On a phone and a desk, light and dark: nothing is wider than the screen, and every button is on it. Keeps a picture."""
    replies = [
        f"Take the {each} train; it leaves at nine and is there by noon.\n\nBring water." for each in ("early", "late")
    ]
    question = "How do I get from Bern to Lugano before lunch? I have two suitcases and a dog."
    one = sitting(Stage(group("trip", *replies, question=question)))
    page = one.open(f"/?mode={mode}")
    page.keyboard.press("?")
    page.keyboard.press("Escape")
    folder = Path(os.environ.get("CLAW_SCREENSHOTS", tmp_path))
    for width, scheme in product((360, 1280), SCHEMES):
        page.set_viewport_size({"width": width, "height": 760})
        page.emulate_media(color_scheme=scheme)
        until(page, f"innerWidth === {width} && document.documentElement.scrollWidth <= {width}")
        for button in page.locator("footer button").all():
            box = button.bounding_box()
            assert box is not None
            assert 0 <= box["x"] <= box["x"] + box["width"] <= width
            assert box["y"] + box["height"] <= 760
        page.screenshot(path=folder / f"feedback-{mode}-{width}-{scheme}.png")
    one.clean(page)
