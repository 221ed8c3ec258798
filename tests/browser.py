"""A real Chromium for tests of pages: `CLAW_CHROMIUM`, else the PATH's, else Debian's packages below `.tools/` (infra/chromium.sh).

Where none is to be had the tests are skipped, and pytest's last lines say why.
"""

import asyncio
import os
import shutil
from collections.abc import Iterator
from functools import cache

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.debian_programs import unpacked

NAMES = ("chromium", "chromium-browser", "google-chrome")
ELSEWHERE = "trainer.example"
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--renderer-process-limit=1", "--process-per-site", "--disable-site-isolation-trials",
    f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
)  # fmt: skip
"""One process draws all pages: starting one costs as much as the page. The resolver's rule lets a test visit another machine's name."""


@cache
def chromium() -> str:
    """Its program. Raises FileNotFoundError with the reason where there is none."""
    known = os.environ.get("CLAW_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if known is not None:
        return known
    try:
        return unpacked("chromium.sh")
    except FileNotFoundError as none:
        raise FileNotFoundError(f"no Chromium: set CLAW_CHROMIUM to one ({none})") from none


class Engine:
    """One Chromium for all files of a process: its driver and itself start once."""

    def __init__(self) -> None:
        self.playwright = sync_playwright().start()
        self.loop = asyncio.get_running_loop()  # Playwright's, which it leaves marked as running
        self.browser = self._launched()

    def enter(self) -> Browser:
        """The browser, for whoever calls it from this thread until `leave`."""
        asyncio._set_running_loop(self.loop)
        if not self.browser.is_connected():
            self.browser = self._launched()
        return self.browser

    def leave(self) -> None:
        """Gives the thread back to tests that run an event loop of their own."""
        asyncio._set_running_loop(None)

    def close(self) -> None:
        self.enter().close()
        self.playwright.stop()

    def _launched(self) -> Browser:
        return self.playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))


ENGINE = pytest.StashKey[Engine]()


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    """The process's Chromium, for the tests of a file."""
    try:
        chromium()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    engine = request.config.stash.get(ENGINE, None)
    if engine is None:
        engine = request.config.stash[ENGINE] = Engine()
        request.config.add_cleanup(engine.close)
    yield engine.enter()
    engine.leave()
