"""The dashboard on a real broker before a real Chromium: what a person does there is what `claw` sees, and the other way round."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect
from typer.testing import CliRunner

from claw_r1.claw.cli import app
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.datapool.fold.state import Fact
from claw_r1.datapool.view.view import TOPICS
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import FactPosition
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS
from tests.browser import browser
from tests.browser_session import BrowserSession
from tests.consumers.dashboard.stage import BrokerStage, episode
from tests.patience import until

__all__ = ["browser"]
pytestmark = [pytest.mark.kafka, pytest.mark.process, pytest.mark.slow]
NAMES = {topic.name: topic for topic in TOPICS}


def stream(settings: LogSettings) -> None:
    """What the streams do: everything on the facts' topics becomes the rows of the pool."""
    states: dict[str, Any] = {}
    records = sorted(read_topics(settings, [CALLS, REWARDS]), key=lambda record: record.timestamp_ms)
    with closing(EventProducer(settings)) as producer:
        for record in records:
            event = record.event()
            if isinstance(event, Fact):
                place = FactPosition(topic=record.topic, partition=record.partition, offset=record.offset)
                states[event.group_id] = fold(states.get(event.group_id), event, place)
        rows = [row for state in states.values() for row in project(state).items()]
        for key, row in rows:
            producer.produce(Outgoing(topic=NAMES[key.topic], key=key.key, value=encode(row))).result()


@pytest.fixture
def url(log_settings: LogSettings) -> Iterator[str]:
    """A dashboard on the broker, over two trajectories."""
    history = [*episode("g", "t0", "Which animal?", "a cat", 1.0), *episode("g", "t1", "Which animal?", "a dog", 0.0)]
    with closing(EventProducer(log_settings)) as producer:
        for event in history:
            producer.publish_now(CALLS, group_key("g"), event)
    stream(log_settings)
    with BrokerStage(log_settings).served() as address:
        yield address


def claw(settings: LogSettings, *arguments: str) -> list[dict[str, Any]]:
    """JSON lines of `claw pool …`."""
    env = {"KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers}
    done = CliRunner().invoke(app, ["pool", *arguments, "--prefix", settings.prefix, "--json"], env=env)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def acts_of(http: httpx.Client, who: str) -> list[dict[str, Any]]:
    return [each for each in http.get("acts").json()["acts"] if each["who"] == who]


def test_claw_rest_and_page_say_the_same(url: str, log_settings: LogSettings, browser: Browser) -> None:
    """Curated, labelled, preferred and undone on the page: `claw pool steps` has it; judged by `claw`, the page has it."""
    one = BrowserSession(browser, url)
    page = one.open("/curation?g=g&t=t0", waits_for=".judge button")
    page.get_by_label("Quality", exact=True).fill("0.25")
    page.get_by_label("Quality", exact=True).press("Enter")
    expect(page.locator(".said")).to_contain_text("quality 0.25")
    page.locator("h1").click()
    page.keyboard.press("2")
    expect(page.locator("aside p[role=status]")).to_contain_text("you judged 1 of 2")
    expect(page.locator(".side h3")).to_contain_text("t1")
    expect(page.locator(".judge [aria-busy=false]")).to_be_visible()  # a key before that is meant for nothing yet
    page.keyboard.press("5")
    expect(page.locator("aside p[role=status]")).to_contain_text("you judged 2 of 2")
    page.keyboard.press("u")
    expect(page.locator(".said")).to_contain_text("taken back: overall 5 of 5")
    stream(log_settings)
    first, second = claw(log_settings, "steps", "--group", "g")
    assert (first["curation"]["quality"], first["curation"]["who"], second["curation"]) == (0.25, "ann", None)
    (row, other) = claw(log_settings, "trajectories", "--group", "g")
    assert {slot["name"]: slot["value"] for slot in row["rewards"] if slot["source"] == "human:ann"} == {
        "overall": 0.25
    }
    assert [slot["value"] for slot in other["rewards"] if slot["source"] == "human:ann"] == [None]

    (done,) = claw(log_settings, "curate", "t1", "--quality", "0.75", "--set-tag", "odd", "--who", "bob")
    stream(log_settings)
    page.goto(f"{url}/curation?g=g&t=t1")
    expect(page.get_by_label("Quality", exact=True)).to_have_value("0.75")
    expect(page.get_by_label("Tags", exact=True)).to_have_value("odd")
    with httpx.Client(base_url=f"{url}/api/v1/", timeout=20) as http:
        http.get("session")
        rest = http.get("judged", params={"g": "g", "t": "t1"}).json()["curation"]
        (act,) = until(lambda: acts_of(http, "bob"), "the page has read his act, too")
    (step,) = claw(log_settings, "steps", "--group", "g", "--trajectory", "t1")
    assert {name: step["curation"][name] for name in rest} == rest
    assert (act["act_id"], act["says"]) == (done["curation_id"], ["quality 0.75; tags odd"])
    page.goto(f"{url}/curation?tab=history")
    page.locator("tr", has_text="bob").get_by_role("button", name="Take back").click()
    expect(page.locator("tr.fallen", has_text="bob")).to_have_count(1)
    stream(log_settings)
    (step,) = claw(log_settings, "steps", "--group", "g", "--trajectory", "t1")
    assert (step["curation"]["quality"], step["curation"]["tags"]) == (None, [])
    one.clean(page)
    one.close()
