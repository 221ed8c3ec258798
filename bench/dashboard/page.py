"""The part of `bench.dashboard`, and the page that it opens.

`python -m bench.dashboard.page N` serves N trajectories from a log in memory and prints its address.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any

import httpx
from msgspec.structs import replace
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from bench.dashboard.rows import CALLS, MEMBERS, group_rows
from bench.medians import median_of, percentile
from bench.report import Figures
from claw_r1.claw.local.ports import free_ports
from claw_r1.consumers.dashboard.settings import DashboardSettings
from claw_r1.consumers.web.serve import bind_page, run_page
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.events import EpisodeFigures, Event, FactPosition, PlannedStep, PlannedTrajectory
from claw_r1.schemas.topics import GROUPS, STEPS, TRAJECTORIES
from tests.browser import ARGUMENTS, chromium
from tests.consumers.dashboard.stage import DashboardStage
from tests.consumers.runs import observed

KINDS = ("groups", "trajectories", "steps")
COLUMNS = "task,run,version_max,reasons,channel"
FILTERS: tuple[dict[str, str], ...] = (
    {},
    {"channel": "train", "run": "run-1", "ready": "true"},
    {"run": "run-2", "reason": "rewards_missing"},
    {"finish": "stop", "version_min": "50"},
    {"agent": "agent-1", "tag": "maths"},
)
RUN, RUN_BATCHES, RUN_GROUPS = "run-1", 100, 8
"""The run whose home is opened: of the groups that name it, it trained so many batches of so many groups."""
METRICS = (
    "reward_p10",
    "reward_p90",
    "zero_variance_share",
    "truncated_share",
    "response_tokens_p50",
    "response_tokens_p95",
)
UPDATES_OF_AN_HOUR = 4 * 3600
VIEW = {"width": 1400, "height": 900}
SCROLL_S = 3.0
READ_TIMEOUT_S = 600.0
LIST = "/explorer?kind=trajectories&sort=changed&desc=true"
ROWS = '.windowed [role="row"][aria-selected]'
FIRST = {
    "first_rows_ms": (LIST, ROWS),
    "home_ms": (f"/overview?run={RUN}", ".curves canvas"),
    "batch_ms": (f"/batch?run={RUN}&n={RUN_BATCHES - 1}", ".batch-members tbody tr"),
}
"""Figure -> the address that is opened, and what is then on the screen: rows; curves, which come after the numbers; members."""
FRAMES = """(seconds) => new Promise((done) => {
  const list = document.querySelector('.windowed'), times = [], begin = performance.now();
  let before = begin;
  const step = (now) => {
    times.push(now - before); before = now;
    if (list) list.scrollTop = (list.scrollHeight - list.clientHeight) * Math.min(1, (now - begin) / (1000 * seconds));
    now - begin < 1000 * seconds ? requestAnimationFrame(step) : done(times.slice(2));
  };
  requestAnimationFrame(step);
})"""
HOUR = """(count) => {
  const channel = new BroadcastChannel('claw dashboard: live');
  for (let number = 0; number < count; number += 1) {
    const changed = [...Array(25).keys()].map((at) => [`g-${number}`, `t-${number}-${at}`]);
    channel.postMessage({id: `00000000-${number}`, update: {trajectory: changed, group: [[`g-${number}`]]}});
  }
  channel.close();
}"""


def serve(trajectories: int) -> None:
    """Until SIGTERM. What the streams would have written lies in a log in memory."""
    stage = DashboardStage()
    topics = {topic.name: topic for topic in (STEPS, TRAJECTORIES, GROUPS)}
    for number in range(trajectories // MEMBERS):
        written = group_rows(number)
        stage.log.append([Outgoing(topic=topics[name], key=key, value=value) for name, key, value in written])
    stage.report(*run_events())
    (port,) = free_ports(1)
    app: Any = stage.page(port=port)
    settings = DashboardSettings(port=port)
    listener = bind_page(settings)
    print(json.dumps({"url": f"http://127.0.0.1:{port}"}), flush=True)
    run_page(app, listener, settings)


def run_events() -> Iterator[Event]:
    """The events of a run of `RUN_BATCHES` batches."""
    yield observed.started(RUN)
    for n in range(RUN_BATCHES):
        groups = range(3 * RUN_GROUPS * n + 1, 3 * RUN_GROUPS * (n + 1) + 1, 3)
        members = tuple(planned(group, member) for group in groups for member in range(MEMBERS))
        yield replace(observed.planned(n, RUN), trajectories=members)
        yield observed.trained(n, n / RUN_BATCHES, RUN, train_s=2.0, **dict.fromkeys(METRICS, n / 100))
        yield observed.weights(n + 1, run_id=RUN)


def planned(group: int, member: int) -> PlannedTrajectory:
    """A member of `group_rows` as a plan has it."""
    name, nowhere = f"{group:08d}-{member}", FactPosition(topic="claw.calls", partition=0, offset=0)
    steps = [
        PlannedStep(call_id=f"c-{name}-{call}", position=nowhere, digest="", trained=True) for call in range(CALLS)
    ]
    return PlannedTrajectory(
        group_id=f"g-{group:08d}", trajectory_id=f"t-{name}", reward=member / MEMBERS, advantage=member - 3.5, min_version=0,
        max_version=1, steps=tuple(steps), figures=EpisodeFigures(response_lengths=(100 + member,) * CALLS),
    )  # fmt: skip


@contextmanager
def served(trajectories: int) -> Iterator[tuple[str, float]]:
    """Its address, once all is read, and how long the first page of the list took from the process's first sign of life, in seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.dashboard.page", str(trajectories)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        begin = time.monotonic()
        with httpx.Client(base_url=f"{url}/api/v1/", timeout=60) as http:
            http.get("session").raise_for_status()
            http.get("rows", params={"kind": "trajectories"}).raise_for_status()
            first_s = time.monotonic() - begin
            while not http.get("state").json()["caught_up"]:
                assert time.monotonic() - begin < READ_TIMEOUT_S, "the pool is not read"
                time.sleep(0.5)
        yield url, first_s
    finally:
        process.terminate()
        process.wait(30)


def measure(trajectories: int, repeats: int) -> Figures:
    """Medians of the repeats, heap and nodes of one hour."""
    with served(trajectories) as (url, first_s), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        first_ms(browser, url, "/live", "body")  # a browser's own first page costs it some 100 ms
        figures = {
            "first_answer_s": first_s,
            **{name: median_of(partial(first_ms, browser, url, *what), repeats) for name, what in FIRST.items()},
            "three_filters_ms": median_of(partial(three_filters_ms, browser, url), repeats),
            "route_ms": route_ms(url),
            "frame_ratio": median_of(partial(frame_ratio, browser, url), repeats),
            **after_an_hour(browser, url),
        }
        browser.close()
    return figures


def route_ms(url: str) -> float:
    """p95 over HTTP of the questions that an explorer asks: its first rows, as its columns are, by kind, filter and order."""
    taken = []
    with httpx.Client(base_url=f"{url}/api/v1/", timeout=60) as http:
        http.get("session").raise_for_status()
        for _, kind, filters, sort in product(range(3), KINDS, FILTERS, ({}, {"sort": "version_max"})):
            begin = time.perf_counter()
            question = {"kind": kind, "columns": COLUMNS, **sort, **filters}
            http.get("rows", params=question).raise_for_status()
            taken.append((time.perf_counter() - begin) * 1000)
    return percentile(taken, 95)


def three_filters_ms(browser: Browser, url: str) -> float:
    """From the press of a third count beside the list to the rows and counts that it leaves."""
    with browser.new_context(viewport=VIEW) as context:
        page = opened(context, f"{url}{LIST}&channel=train&finish=stop")
        press = page.get_by_label("Counts per value").get_by_role("button", name="run-1")
        before = str(page.locator(".count").text_content())
        press.wait_for()
        begin = time.perf_counter()
        press.click()
        page.wait_for_function("(before) => document.querySelector('.count')?.textContent !== before", arg=before)
        page.wait_for_selector(ROWS)
        return (time.perf_counter() - begin) * 1000


def opened(context: BrowserContext, address: str, sign: str = ROWS) -> Page:
    """A page, once something is on the screen."""
    page = context.new_page()
    page.goto(address, wait_until="commit")
    page.wait_for_selector(sign)
    return page


def first_ms(browser: Browser, url: str, address: str, sign: str) -> float:
    """From the navigation to what was asked for on the screen, in a fresh profile."""
    with browser.new_context() as context:
        return float(opened(context, f"{url}{address}", sign).evaluate("performance.now()"))


def frame_ratio(browser: Browser, url: str) -> float:
    """p95 of the times between frames while the list is scrolled from end to end ÷ an empty page's."""
    with browser.new_context(viewport=VIEW) as context:
        empty = opened(context, "about:blank", "html").evaluate(FRAMES, SCROLL_S)
        full = opened(context, f"{url}{LIST}").evaluate(FRAMES, SCROLL_S)
        return percentile(full, 95) / percentile(empty, 95)


def after_an_hour(browser: Browser, url: str) -> dict[str, float]:
    """MB of the page's heap and nodes of its document, after as many updates as an hour has, and a collection of garbage."""
    with browser.new_context(viewport=VIEW) as context:
        page, other = opened(context, f"{url}{LIST}"), context.new_page()
        other.goto(f"{url}/api/v1/state")  # of this origin, and no page of ours
        for _ in range(UPDATES_OF_AN_HOUR // 600):
            other.evaluate(HOUR, 600)
            page.wait_for_timeout(300)
        page.wait_for_timeout(2000)
        session = context.new_cdp_session(page)
        session.send("HeapProfiler.collectGarbage")
        session.send("Performance.enable")
        metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return {"heap_mb": metrics["JSHeapUsedSize"] / 1e6, "nodes": metrics["Nodes"]}


if __name__ == "__main__":
    serve(int(sys.argv[1]))
