"""`claw dashboard` as a process on a real broker: what it prints, and what open pages see when it is killed and comes back."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from claw_r1.claw.local.kafka_node import LocalBroker
from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.settings import LogSettings
from tests import patience
from tests.browser import browser
from tests.children import end, start
from tests.consumers.feedback.stage import seed
from tests.patience import PATIENCE_S
from tests.sitting import Sitting, until
from tests.soak import only_in_soak

__all__ = ["browser"]


@contextmanager
def dashboard(settings: LogSettings, log: Path, port: int = 0) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Its address and process. It is not told how many partitions there are: the broker knows."""
    flags = ["dashboard", "--json", "--port", str(port), "--prefix", settings.prefix]
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
        one = Sitting(browser, url)
        page = one.open("/", waits_for="header .stream.live")
        page.evaluate(
            "window.heard = []; import('/page/parts/live.js').then(({onChange}) => onChange((update) => { window.heard.push(update); }))"
        )
        process.kill()
        process.wait()
        expect(page.get_by_role("alert").first).to_contain_text("does not answer")
    seed(log_settings, "h", "u")
    with dashboard(log_settings, tmp_path / "log", port) as (url, process):
        expect(page.locator("header .stream.live")).to_be_visible()
        expect(page.locator(".banner")).to_have_count(0)
        until(page, "window.heard.includes(null)")  # it is told to read again; single updates may follow at once
        with httpx.Client(base_url=f"{url}/api/v1/", timeout=30) as http:
            http.get("session")
            state = patience.until(lambda: caught_up(http), "the log is read")
            assert (state["prefix"], state["generation"]) == (log_settings.prefix, 1)
            one.close()
            with http.stream("GET", "live") as listening:
                assert next(listening.iter_lines()).startswith("id: ")
                process.terminate()
                assert process.wait(PATIENCE_S) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


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
        one = Sitting(browser, url)
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
