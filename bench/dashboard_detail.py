"""The costs of one trajectory: its answers by HTTP, and ten thousand tokens on the screen."""

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import sync_playwright

from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.datapool.fold.state import GroupState
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.arrays import pack_floats
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import Event, FactPosition
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS
from tests import facts
from tests.browser import ARGUMENTS, chromium
from tests.consumers.dashboard.conversations import told
from tests.consumers.dashboard.stage import NAMES, DashboardStage
from tests.consumers.dashboard.token_scenes import TIMED, run_started, sampled, write_tokenizer
from tests.sitting import until

TOKENS = 10_000
CALLS_OF_LONG = 10_000
WORDS = "a word of the agent " * 150
"""About 750 tokens of text, of which 40 calls have 30,000."""
ANSWERS = ("trajectory", "trajectory/calls", "trajectory/messages")


def measure(repeats: int) -> dict[str, float]:
    """`detail_ms`, `detail_10k_ms`: the slowest of a trajectory's answers, each a median of fresh processes' first ones;
    `tokens_ms`: from a key to the painted tokens."""
    short = [*told(40, text=WORDS, window=40), facts.completed("g", "t", calls=40, reward=1.0)]
    long = [*told(CALLS_OF_LONG, text="step", window=100), facts.completed("g", "t", calls=CALLS_OF_LONG, reward=1.0)]
    return {
        "detail_ms": statistics.median(_slowest_ms(short) for _ in range(repeats)),
        "detail_10k_ms": statistics.median(_slowest_ms(long) for _ in range(repeats)),
        "tokens_ms": tokens_ms(repeats),
    }


def _slowest_ms(events: Sequence[Event]) -> float:
    """Returns the slowest of the replies that the view requests when it is opened, each requested once of a page that
    just read the pool."""
    with _served(events) as http:
        times = []
        for path in ANSWERS:
            begin = time.perf_counter()
            http.get(path, params={"g": "g", "t": "t"}).raise_for_status()
            times.append(1000 * (time.perf_counter() - begin))
    return max(times)


@contextmanager
def _served(events: Sequence[Event]) -> Iterator[httpx.Client]:
    """A page on a pool that was folded once."""
    stage, state = DashboardStage(), None
    for event in events:
        (at,) = stage.log.append([Outgoing.of(CALLS, group_key("g"), event)])
        state = fold(state, event, FactPosition(topic=at.topic, partition=at.partition, offset=at.offset))
    assert isinstance(state, GroupState)
    rows = project(state).items()
    stage.log.append([Outgoing(topic=NAMES[key.topic], key=key.key, value=encode(row)) for key, row in rows])
    with stage.served() as url, httpx.Client(base_url=f"{url}/api/v1/", timeout=120) as http:
        http.get("session").raise_for_status()
        while not http.get("state").json()["caught_up"]:
            time.sleep(0.1)
        yield http


def tokens_ms(repeats: int) -> float:
    """From the key that leads to a call of 10,000 tokens until they are painted with their heat."""
    with tempfile.TemporaryDirectory() as folder:
        words = [f"word{number} some thing {number * number}; " for number in range(200)]
        tokenizer = write_tokenizer(Path(folder) / "model", words)
        ids = (tokenizer.encode("".join(words) * 4).ids * 9)[:TOKENS]
        logprobs = pack_floats([-((number * 37) % 100) / 15 for number in range(TOKENS)])
        large = sampled(tokenizer, "c1", "go", "", ids=tuple(ids), response_logprobs=logprobs, spans=())
        small = sampled(tokenizer, "c0", "go", "short", received_us=-5)
        stage = DashboardStage([small, large, facts.completed("g", "t", calls=2, reward=1.0)])
        stage.report(run_started(Path(folder) / "model"))
        with stage.served() as url, sync_playwright() as playwright:
            opened = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
            times = []
            for _ in range(repeats):
                page = opened.new_page(viewport={"width": 1600, "height": 900})
                page.goto(f"{url}/tokens?g=g&t=t&c=c0")
                page.wait_for_selector(".token-line .token")
                page.evaluate(TIMED)
                until(page, "window.tookMs !== undefined")
                times.append(float(page.evaluate("window.tookMs")))
                page.close()
            opened.close()
    return statistics.median(times)
