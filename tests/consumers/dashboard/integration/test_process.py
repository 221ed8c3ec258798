"""`claw dashboard` as a process on a real broker: what it prints, and what open pages see when it is killed and comes back."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import RewardAssigned
from claw_r1.schemas.topics import REWARDS
from tests import patience
from tests.browser import browser
from tests.browser_session import BrowserSession, until
from tests.children import end, start
from tests.consumers.dashboard.stage import seed
from tests.patience import PATIENCE_S
from tests.soak import only_in_soak

__all__ = ["browser"]


@contextmanager
def dashboard(
    settings: LogSettings, log: Path, port: int = 0, command: str = "dashboard", metrics: int = 0
) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Its address and process. It is not told how many partitions there are: the broker knows."""
    flags = [command, "--who", "ann", "--json", "--port", str(port), "--prefix", settings.prefix]
    flags += ["--metrics-port", str(metrics)]
    with log.open("ab") as errors:
        process = start(
            [sys.executable, "-m", "claw_r1.claw", *flags, "--bootstrap-servers", settings.bootstrap_servers],
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        assert process.stdout is not None
        words = json.loads(process.stdout.readline() or "{}")
        assert words.get("state") == "reading", log.read_text()
        yield words["url"], process
    finally:
        end(process)


def caught_up(http: httpx.Client) -> dict[str, Any] | None:
    """The state, once everything was read."""
    state: dict[str, Any] = http.get("state").json()
    return state if state["caught_up"] else None


@pytest.mark.kafka
def test_killed_and_back_under_an_open_page(log_settings: LogSettings, tmp_path: Path, browser: Browser) -> None:
    """A banner while it is away; then live again, and what happened meanwhile is read. SIGTERM: exit 0, though somebody listens."""
    seed(log_settings)
    (port,) = free_ports(1)
    with dashboard(log_settings, tmp_path / "log", port) as (url, process):
        one = BrowserSession(browser, url)
        page = one.open("/", waits_for="header .stream.live")
        page.evaluate(
            "window.heard = []; import('/page/parts/live.js').then(({onChange}) => onChange((update) => { window.heard.push(update); }))"
        )
        process.kill()
        process.wait()
        expect(page.get_by_role("alert").first).to_contain_text("does not answer")
    seed(log_settings, "h", "u")
    (metrics,) = free_ports(1)
    with dashboard(log_settings, tmp_path / "log", port, metrics=metrics) as (url, process):
        expect(page.locator("header .stream.live")).to_be_visible()
        expect(page.locator(".banner")).to_have_count(0)
        until(page, "window.heard.includes(null)")  # it is told to read again; single updates may follow at once
        with httpx.Client(base_url=f"{url}/api/v1/", timeout=30) as http:
            http.get("session")
            state = patience.until(lambda: caught_up(http), "the log is read")
            assert (state["prefix"], state["generation"]) == (log_settings.prefix, 1)
            door = f"http://127.0.0.1:{metrics}"
            assert patience.until(lambda: httpx.get(f"{door}/readyz").json()["ready"], "the runs are read")
            assert "claw_dashboard_readers 1.0" in httpx.get(f"{door}/metrics").text
            one.close()
            with http.stream("GET", "live") as listening:
                assert next(listening.iter_lines()).startswith("id: ")
                process.terminate()
                assert process.wait(PATIENCE_S) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.kafka
def test_a_judgement_reaches_the_real_log(log_settings: LogSettings, tmp_path: Path) -> None:
    """`claw feedback` names Curation; the conversation comes by position, the judgement is in claw.rewards when the answer is there."""
    seed(log_settings)
    with dashboard(log_settings, tmp_path / "log", command="feedback") as (url, process):
        assert url.endswith("/curation")
        with httpx.Client(base_url=f"{url.removesuffix('/curation')}/api/v1/", timeout=30) as http:
            http.headers["x-page-token"] = http.get("session").json()["token"]
            patience.until(lambda: caught_up(http), "the log is read")
            (item,) = http.get("queue").json()["items"]
            assert (item["group_id"], item["trajectory_id"]) == ("g", "t")
            (side,) = http.get("subject", params={"group_id": "g", "trajectory_id": "t"}).json()["sides"]
            assert [turn["content"] for turn in side["turns"]] == ["which?", "this one"]
            answer = http.post("judgements", json={"group_id": "g", "trajectory_id": "t", "thumb": True})
            assert answer.status_code == 200, answer.text
            (event,) = readable(read_topics(log_settings, [REWARDS]))
            assert isinstance(event, RewardAssigned)
            assert (event.source, event.name, event.value) == ("human:ann", "thumb", 1.0)
            assert (event.envelope.producer, [event.envelope.event_id]) == ("dashboard", answer.json()["events"])
            assert http.get("queue").json()["items"] == []
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.process
def test_what_it_cannot_do_is_one_line() -> None:
    """A port that is taken, a broker that is not there, an address of others without keys: exit 2, one line each."""
    (closed,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        away = f"127.0.0.1:{closed}"
        cases = {
            f"cannot listen on 127.0.0.1:{port}": ("--port", str(port)),
            away: ("--port", "0", "--bootstrap-servers", away, "--connect-timeout-s", "1"),
            "--keys": ("--host", "0.0.0.0"),
        }
        command = (sys.executable, "-m", "claw_r1.consumers.dashboard")
        started = {
            words: start([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for words, flags in cases.items()
        }
        for words, process in started.items():
            _, said = process.communicate(timeout=PATIENCE_S)
            lines = [line for line in said.splitlines() if line.startswith("dashboard: ")]
            assert (process.returncode, len(lines)) == (2, 1), said
            assert words in lines[0]
            assert "Traceback" not in said


@only_in_soak
@pytest.mark.kafka
def test_a_broker_that_is_away_is_said_on_every_page(
    local_broker: LocalBroker, tmp_path: Path, browser: Browser
) -> None:
    """A banner while the broker is away, though the dashboard's own server answers; none once it is back."""
    settings = LogSettings(bootstrap_servers=local_broker.bootstrap, prefix="away-page", partitions=2)
    create_topics(settings)
    seed(settings)
    with dashboard(settings, tmp_path / "log") as (url, _):
        one = BrowserSession(browser, url)
        pages = [one.open(path, waits_for="header .stream.live") for path in ("/explorer", "/curation")]
        local_broker.kill()
        for page in pages:
            expect(page.locator(".banner")).to_contain_text("the log does not answer")
            expect(page.locator("header .stream.live")).to_be_visible()
        local_broker.start()
        for page in pages:
            expect(page.locator(".banner")).to_have_count(0)
        one.close()
    assert "Traceback" not in (tmp_path / "log").read_text()
