"""A person at a real browser before one of our pages: what it asked for, what it complained of, and texts that attack it."""

import time
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.patience import PATIENCE_S

WATCH = """
window.reports = [];
addEventListener('securitypolicyviolation', (event) => window.reports.push(event.violatedDirective + ' ' + event.blockedURI));
"""
PAYLOADS = {
    "script": "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>",
    "svg": "<svg onload='window.pwned = 1'><animate onbegin='window.pwned = 1'/></svg>",
    "link": "[click](javascript:window.pwned=1) <a href='javascript:window.pwned=1'>x</a> javascript:window.pwned=1",
    "remote": "![x](http://evil.example/x.png) <img src='http://evil.example/y.png'><link rel=stylesheet href=//evil.example/z.css>",
    "style": "<style>*{display:none}</style><base href='http://evil.example/'><meta http-equiv=refresh content='0;url=http://evil.example'>",
    "bidi": "admin\u202e nimda\u2066\u2069 \u200bzero\u200b \U000e0041tag",
    "control": "before\x00after \x1b[31mred\x1b[0m \x07",
    "template": "${alert(1)} {{constructor.constructor('window.pwned=1')()}} `+window.pwned+`",
}


class Sitting:
    """A person at a browser, and what it asked for."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.context: BrowserContext = browser.new_context(**options)
        self.context.set_default_timeout(PATIENCE_S * 1000)
        expect.set_options(timeout=PATIENCE_S * 1000)
        self.context.add_init_script(WATCH)
        self.url = url
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def open(self, path: str = "/", *, waits_for: str = "article, .empty p") -> Page:
        """A tab, once something is to be judged or nothing is."""
        page = self.context.new_page()
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        page.goto(self.url + path)
        page.wait_for_selector(waits_for)
        return page

    def clean(self, page: Page) -> None:
        """Nothing ran, nothing was reported, nothing left this host."""
        assert page.evaluate("window.pwned") is None
        assert page.evaluate("window.reports") == [], page.evaluate("window.reports")
        assert [url for url in self.requests if not url.startswith((self.url, "data:"))] == []
        assert self.complaints == [], self.complaints


def until(page: Page, expression: str, timeout_s: float = PATIENCE_S) -> None:
    """Waits for an expression to be true in the page: Playwright's own wait needs `eval`, which our policy forbids."""
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never so: {expression}"
        time.sleep(0.05)
