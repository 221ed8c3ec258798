"""The explorer and the group board in a real Chromium: by keys, live without moving what is read, hostile text in every field."""

import re
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, Route, expect

from tests import facts
from tests.browser import browser
from tests.browser_session import PAYLOADS, BrowserSession, until
from tests.consumers.dashboard.stage import DashboardStage, episode, said

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]
ROW = ".cells:not(.heads)"
Open = Callable[[DashboardStage], BrowserSession]


@pytest.fixture
def opening(browser: Browser) -> Iterator[Open]:
    ends: list[Callable[[], object]] = []

    def begin(stage: DashboardStage) -> BrowserSession:
        served = stage.served()
        one = BrowserSession(browser, served.__enter__())
        ends.extend((lambda: served.__exit__(None, None, None), one.close))
        return one

    yield begin
    while ends:
        ends.pop()()


def animals(*names: str) -> DashboardStage:
    """Trajectories of one group, each with a higher return than the one before."""
    scenes = (
        episode("g", name, "Which animal?", f"a {name}", at / 10, envelope=facts.envelope(at_us=at + 1))
        for at, name in enumerate(names)
    )
    return DashboardStage(*scenes)


def herd(size: int) -> DashboardStage:
    """As many groups of one trajectory."""
    return DashboardStage(*(episode(f"n{number:03}", "t", "?", "!", number / 10) for number in range(size)))


def shown(page: Page) -> list[str]:
    return page.locator(f"{ROW} a").all_text_contents()


def asked(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_rows_come_without_moving_what_is_read(opening: Open) -> None:
    """A new row is counted above the list, a changed one changes in place; `n` takes in what is new."""
    stage = animals("cat", "dog", "fox")
    one = opening(stage)
    page = one.open("/explorer?sort=return&desc=true", waits_for=f"{ROW} a")
    page.keyboard.press("j")
    expect(page.locator(f"{ROW}.current")).to_contain_text("fox")
    stage.tell(*episode("g", "owl", "Which animal?", "an owl", 9.0))
    expect(page.locator(".fresh")).to_have_text("1 new: take it in")
    assert shown(page) == ["fox", "dog", "cat"]
    stage.tell(facts.reward("g", "cat", 5.0))
    expect(page.locator(f"{ROW} >> nth=2")).to_contain_text("5")
    assert shown(page) == ["fox", "dog", "cat"]
    page.keyboard.press("n")
    expect(page.locator(f"{ROW} a")).to_have_text(["owl", "cat", "fox", "dog"])
    expect(page.locator(f"{ROW}.current")).to_contain_text("fox")  # what a person was at, wherever it stands now
    one.clean(page)


def test_what_is_new_is_taken_in_while_an_answer_is_on_its_way(opening: Open) -> None:
    """The answer, asked before, neither brings the earlier order back nor takes away the row that a person is at."""
    stage = animals("cat", "dog")
    one = opening(stage)
    page = one.open("/explorer?sort=return&desc=true&at=g/dog", waits_for=f"{ROW}.current")
    stage.tell(*episode("g", "owl", "Which animal?", "an owl", 9.0))
    expect(page.locator(".fresh")).to_have_text("1 new: take it in")
    held: list[Route] = []
    page.route("**/api/v1/rows?*", lambda route: route.continue_() if held else held.append(route))
    stage.tell(facts.reward("g", "cat", 5.0))
    while not held:
        page.wait_for_timeout(20)
    page.keyboard.press("n")
    held[0].continue_()
    expect(page.locator(f"{ROW} a")).to_have_text(["owl", "cat", "dog"])
    expect(page.locator(f"{ROW}.current")).to_contain_text("dog")
    one.clean(page)


def test_an_empty_list_fills_and_a_followed_one_goes_on(opening: Open) -> None:
    stage = DashboardStage()
    one = opening(stage)
    page = one.open("/explorer", waits_for=".empty")
    stage.tell(*episode("g", "cat", "Which animal?", "a cat", 1.0))
    expect(page.locator(f"{ROW} a")).to_have_text(["cat"])
    page.get_by_label("follow").check()
    stage.tell(*episode("g", "dog", "Which animal?", "a dog", 0.0))
    expect(page.locator(f"{ROW} a")).to_have_count(2)
    one.clean(page)


def test_search_mark_compare_and_step_by_keys(opening: Open) -> None:
    """`/`, `j`, `x`, `c`; and `]` on a group's board goes through the list that one came from."""
    stage = animals("cat", "cow", "dog")
    for group in ("h", "i", "k"):
        stage.tell(*episode(group, "cat", "Which?", "x", 1.0, channel="val" if group == "i" else "train"))
    one = opening(stage)
    page = one.open("/explorer?sort=id", waits_for=f"{ROW} a")
    page.keyboard.press("f")
    page.keyboard.type("c", delay=20)
    until(page, "new URLSearchParams(location.search).get('text') === 'c'")
    expect(page.locator(f"{ROW} a")).to_have_text(["cat", "cow", "cat", "cat", "cat"])
    page.keyboard.press("Escape")
    for key in "jxjx":
        page.keyboard.press(key)
    until(page, "new URLSearchParams(location.search).getAll('m').length === 2")
    page.keyboard.press("c")
    page.wait_for_selector(".pair .ids")
    assert asked(page) == {"g": ["g"], "a": ["cat"], "b": ["cow"]}
    page.goto(f"{one.url}/explorer?kind=groups&channel=train&sort=id")
    page.wait_for_selector(f"{ROW} a")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Group h")
    expect(page.locator(".neighbours")).to_contain_text("2 of 3")
    page.keyboard.press("]")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Group k")  # i is of another channel
    one.clean(page)


def test_a_key_counts_from_the_first_sight_of_the_rows(opening: Open) -> None:
    """A search brings other rows: who presses `j` before the browser has painted them stands on the first, and stays there."""
    one = opening(animals("cat", "dog", "cow"))
    page = one.open("/explorer?sort=id", waits_for=f"{ROW} a")
    page.evaluate("""() => new MutationObserver((changes, seen) => {
        const rows = [...document.querySelectorAll(".cells:not(.heads) a")].map((link) => link.textContent);
        if (rows.join() !== "cat,cow") return;
        seen.disconnect();
        document.activeElement.blur();
        document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true }));
        window.pressed = true;
    }).observe(document.body, { childList: true, subtree: true, characterData: true })""")
    page.keyboard.press("f")
    page.keyboard.type("c")
    until(page, "window.pressed")
    until(page, "new URLSearchParams(location.search).get('at') === 'g/cat'")
    expect(page.locator(f"{ROW}.current")).to_contain_text("cat")
    one.clean(page)


def test_one_box_opens_whatever_it_is_told(opening: Open) -> None:
    """From another view, by keys: an id opens its view, one of several asks which, a text is sought; a call is why it is not
    trained in one act."""
    stage = animals("cat", "dog")
    stage.tell(*episode("h", "cat", "Which animal?", "a tiger", sampling=replace(facts.PLAIN, temperature=0.0)))
    one = opening(stage)
    page = one.open("/curation", waits_for=".queue a")
    for name in ("cat", "g/cat"):
        page.keyboard.press("/")
        page.keyboard.press("Control+a")
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        if name == "cat":
            expect(page.locator(".hits li")).to_have_count(3)
    expect(page).to_have_url(re.compile("/trajectory.*g=g&t=cat"))
    page.keyboard.press("/")
    page.keyboard.press("Control+a")
    page.keyboard.type("h/cat/cat-0")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("greedy")
    page.keyboard.press("/")
    page.keyboard.press("Control+a")
    page.keyboard.type("no such id")
    page.keyboard.press("Enter")
    until(
        page, "location.pathname === '/explorer' && new URLSearchParams(location.search).get('text') === 'no such id'"
    )
    one.clean(page)


def test_rows_are_told_apart_and_reasons_are_sentences(opening: Open) -> None:
    """A row has the end of its reply; what is not trained is counted by reason, and the count opens these rows."""
    stage = animals("cat", "dog")
    stage.tell(*episode("h", "t", "Which animal?", "a tiger", sampling=replace(facts.PLAIN, temperature=0.0)))
    one = opening(stage)
    page = one.open("/explorer?sort=id", waits_for=f"{ROW} .reply bdi")
    expect(page.locator(f"{ROW} .reply").last).to_have_text("a tiger")
    page.goto(f"{one.url}/explorer?kind=steps")
    greedy = page.get_by_label("Counts per value").get_by_role("button", name="greedy")
    expect(greedy).to_have_attribute("title", re.compile(r"^[A-Z].*\. [A-Z]"))
    greedy.click()
    expect(page.locator(".count")).to_have_text("1 step")
    one.clean(page)


def test_the_address_holds_what_is_seen(opening: Open) -> None:
    """Sort, columns, filter, marks and the row one is at come back with a reload; the way back goes back."""
    one = opening(herd(300))
    page = one.open("/explorer?sort=id", waits_for=f"{ROW} a")
    page.locator(".columns summary").click()
    page.locator(".columns").get_by_label("finish").uncheck()
    page.get_by_role("button", name="return", exact=False).first.click()
    expect(page.locator(ROW).first).to_contain_text("n299")
    page.locator(f"{ROW} input").nth(1).check()
    for _ in range(3):
        page.keyboard.press("j")
    until(page, "new URLSearchParams(location.search).get('at') === 'n297/t'")
    address = page.url
    page.reload()
    expect(page.locator(f"{ROW}.current")).to_contain_text("n297")
    assert page.url == address
    expect(page.locator(f"{ROW} input").nth(1)).to_be_checked()
    assert "finish" not in page.locator(".heads").inner_text()
    one.clean(page)


def test_a_long_list_is_windowed_and_sparse(opening: Open) -> None:
    """Of 600 rows only some are in the page, from the first to the last."""
    one = opening(herd(600))
    page = one.open("/explorer?sort=id", waits_for=f"{ROW} a")
    before = len([url for url in one.requests if "/api/v1/rows" in url])
    page.evaluate("document.querySelector('.across .windowed').scrollTop = 1e9")
    expect(page.locator(ROW).last).to_contain_text("n599")
    assert page.locator(ROW).count() < 100
    assert len([url for url in one.requests if "/api/v1/rows" in url]) - before <= 3  # not the four pages between
    one.clean(page)


def test_counts_filter_by_a_press(opening: Open) -> None:
    stage = animals("cat", "dog")
    stage.tell(*episode("v", "eel", "Which animal?", "an eel", 1.0, channel="val"))
    one = opening(stage)
    page = one.open("/explorer?sort=id", waits_for=".facets button")
    page.locator(".facets button", has_text="val").click()
    expect(page.locator(f"{ROW} a")).to_have_text(["eel"])
    expect(page.locator(".facets button", has_text="train")).to_contain_text("2")
    page.locator(".tools .chip").click()
    expect(page.locator(f"{ROW} a")).to_have_count(3)
    one.clean(page)


def test_conversations_are_looked_into_on_demand(opening: Open) -> None:
    one = opening(animals("cat", "dog"))
    page = one.open("/explorer?text=a%20dog", waits_for=".empty")
    page.get_by_role("button", name="look into conversations").click()
    expect(page.locator(".conversations")).to_contain_text("1 with it among the first 2 looked through. That is all.")
    expect(page.locator(".conversations li a")).to_have_text("dog")
    one.clean(page)


def test_a_late_answer_does_not_end_a_newer_search(opening: Open) -> None:
    """Neither one that has matches nor one that failed."""
    one = opening(animals("cat", "dog"))
    page = one.open("/explorer?text=a%20do", waits_for=".empty")
    held: list[Route] = []
    page.route("**/conversations?*", lambda route: held.append(route))  # playwright takes no built-in
    look = page.get_by_role("button", name="look into conversations")
    look.click()
    page.keyboard.press("f")
    page.keyboard.press("End")
    page.keyboard.type("g")
    until(page, "new URLSearchParams(location.search).get('text') === 'a dog'")
    look.click()
    while len(held) < 2:
        page.wait_for_timeout(20)
    held[0].abort()
    expect(page.locator(".conversations")).to_contain_text("Looking…")
    held[1].continue_()
    expect(page.locator(".conversations li a")).to_have_text("dog")
    expect(page.locator(".conversations [role=alert]")).to_have_count(0)


def test_how_a_reply_ends_changes_with_its_row(opening: Open) -> None:
    """The list is live: a trajectory that goes on ends otherwise."""
    stage = animals("cat", "dog")
    one = opening(stage)
    page = one.open("/explorer?sort=id", waits_for=f"{ROW} a")
    row = page.locator(ROW).first
    expect(row).to_contain_text("a cat")
    later = said("g", "cat", "And now?", "a tiger", envelope=facts.envelope(at_us=9))
    stage.tell(replace(later, call_id="cat-1"))
    expect(row).to_contain_text("a tiger")
    one.clean(page)


def test_a_command_of_marked_rows_is_one_command(opening: Open) -> None:
    """Whatever their ids are, a shell reads them as ids."""
    one = opening(DashboardStage(episode("g; rm -rf /", "t\x1b]0;x\x07'", "?", "!", -0.5)))
    page = one.open(
        "/explorer?m=g%253B%2520rm%2520-rf%2520%252F%2Ft%251B%255D0%253Bx%2507%2527", waits_for=".acts code"
    )
    command = page.locator(".acts code").first.inner_text()
    assert command.startswith(r"claw pool curate $'t\u001b]0;x\u0007\u0027' --group='g; rm -rf /'")
    one.clean(page)


def test_a_command_of_a_filter_finds_the_rows_of_the_list(opening: Open) -> None:
    """A text that `claw pool steps` would look for in conversations, too, is in no command; of other rows it is."""
    one = opening(animals("cat"))
    page = one.tab()
    for kind, finds in (("steps", False), ("trajectories", True)):
        page.goto(f"{one.url}/explorer?kind={kind}&text=cat")
        commands = page.locator(".acts code")
        expect(commands.last).to_have_text("claw export --out=dataset --spec=spec.yaml")
        said = f"claw pool {kind} --text=cat --limit=1 --json > {kind}.jsonl"
        expect(commands.filter(has_text=said)).to_have_count(int(finds))
        expect(commands).to_have_count(1 + finds)
    one.clean(page)


def test_hostile_text_in_every_field_is_text(opening: Open) -> None:
    """Ids, tags, agent, task, what was said; in lists, counts, chips, the board, titles and the address."""
    stage = DashboardStage()
    for text in PAYLOADS.values():
        stage.tell(facts.opened(text, task=text, agent=text, tags=(text,)))
        for name, reward in ((text, 1.0), (f"{text}2", 0.0)):
            stage.tell(*episode(text, name, text, text + name, reward, agent=text, tags=(text,)))
    one = opening(stage)
    page = one.tab()
    for kind in ("trajectories", "steps", "groups"):
        page.goto(f"{one.url}/explorer?kind={kind}&cols=agent,task,tags,channel,reasons&sort=id")
        expect(page.locator(f"{ROW} a")).to_have_count(len(PAYLOADS) * (1 if kind == "groups" else 2))
        for button in page.locator(".facets button").all()[:3]:
            button.click()
        one.clean(page)
    page.goto(f"{one.url}/explorer?kind=groups&sort=id")
    for number in range(len(PAYLOADS)):
        page.locator(f"{ROW} a").nth(number).click()
        page.wait_for_selector(".pair .ids")
        one.clean(page)
        page.go_back()
        page.wait_for_selector(f"{ROW} a")
    one.clean(page)


def test_a_group_fills_up_before_ones_eyes(opening: Open) -> None:
    """Members come, their returns are told, best and worst stand side by side; A and B choose others."""
    stage = DashboardStage([facts.opened("g", expected_size=3)])
    one = opening(stage)
    page = one.open("/group?g=g", waits_for=".waiting")
    expect(page.locator(".waiting")).to_contain_text("3 of 3 have not begun")
    stage.tell(*episode("g", "cat", "Which animal?", "It is a cat.", 1.0))
    expect(page.locator(".member-list .name")).to_have_text(["cat"])
    stage.tell(*episode("g", "dog", "Which animal?", "It is a dog.", 1.0))
    stage.tell(*episode("g", "eel", "Which animal?", "It is an eel.", 1.0))
    expect(page.locator(".chips")).to_contain_text("zero variance")
    stage.tell(facts.reward("g", "dog", -1.0))
    expect(page.locator(".member-list .name")).to_have_text(["cat", "eel", "dog"])
    expect(page.locator(".chips")).not_to_contain_text("zero variance")
    expect(page.locator(".pair mark")).to_have_text(["cat", "dog"])
    for key in "jjb":
        page.keyboard.press(key)
    expect(page.locator(".pair .side.b")).to_contain_text("eel")
    assert asked(page)["b"] == ["eel"]
    page.keyboard.press("Escape")
    expect(page.locator(".pair .side.b")).to_contain_text("dog")
    one.clean(page)


def test_addresses_of_nothing_say_so(opening: Open) -> None:
    one = opening(animals("cat"))
    page = one.open("/explorer?sort=height", waits_for=".problem")
    expect(page.locator(".list .problem")).to_contain_text("no column 'height'")
    page.goto(f"{one.url}/explorer?kind=rows")
    expect(page.locator(".problem")).to_contain_text("groups, trajectories and steps")
    page.goto(f"{one.url}/group?g=nobody")
    expect(page.locator("main .problem").first).to_contain_text("the pool has no group nobody")
    page.goto(f"{one.url}/group?g=g&a=nobody")
    expect(page.locator("main > .problem")).to_contain_text("mark two of the list")
    page.goto(f"{one.url}/group")
    expect(page.locator("main")).to_contain_text("No group is named")
