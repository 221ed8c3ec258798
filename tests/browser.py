"""A real Chromium for tests of pages: `CLAW_CHROMIUM`, else the PATH's, else Debian's packages below `.tools/` (infra/chromium.sh).

Where none is to be had the tests are skipped, and pytest's last lines say why.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("chromium", "chromium-browser", "google-chrome")
UNPACK_TIMEOUT_S = 400
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


@cache
def chromium() -> str:
    """Its program. Raises FileNotFoundError with the reason where there is none."""
    known = os.environ.get("CLAW_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if known is not None:
        return known
    try:
        unpacked = subprocess.run(
            [ROOT / "infra/chromium.sh"], capture_output=True, text=True, timeout=UNPACK_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as late:
        raise FileNotFoundError("no Chromium: Debian's mirror did not answer in time; set CLAW_CHROMIUM") from late
    if unpacked.returncode:
        last = (unpacked.stderr.strip().splitlines() or ["no reason"])[-1]
        raise FileNotFoundError(f"no Chromium: set CLAW_CHROMIUM to one ({last})")
    return unpacked.stdout.strip()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a file; each takes a context of its own."""
    try:
        program = chromium()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield opened
        opened.close()
