"""A person at a real browser before one of our pages: what it asked for, what it complained of, and texts that attack it."""

from functools import cache
from typing import Literal

from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect

from tests import patience
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


@cache
def profile(browser: Browser) -> BrowserContext:
    """The one profile of all sessions: a new one would start a process and compile our scripts again, which costs a CPU second."""
    context = browser.new_context(accept_downloads=True)
    context.set_default_timeout(PATIENCE_S * 1000)
    expect.set_options(timeout=PATIENCE_S * 1000)
    context.add_init_script(WATCH)
    context.new_page()  # keeps the process between two sessions
    return context


class BrowserSession:
    """A person at a browser, and what it asked for.

    Tabs of all sessions share a profile: what a page stores stays with its origin, which has a port of its own, and cookies go at the end.
    """

    def __init__(
        self,
        browser: Browser,
        url: str,
        *,
        viewport: ViewportSize | None = None,
        color_scheme: Literal["light", "dark"] | None = None,
    ) -> None:
        self.context = profile(browser)
        self.url = url
        self.viewport, self.color_scheme = viewport, color_scheme
        self.pages: list[Page] = []
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def open(self, path: str = "/", *, waits_for: str = "article, .empty p") -> Page:
        """A tab, once something is to be judged or nothing is."""
        page = self.tab()
        page.goto(self.url + path)
        page.wait_for_selector(waits_for)
        return page

    def tab(self) -> Page:
        """An empty one, watched."""
        page = self.context.new_page()
        self.pages.append(page)
        if self.viewport:
            page.set_viewport_size(self.viewport)
        if self.color_scheme:
            page.emulate_media(color_scheme=self.color_scheme)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        return page

    def clean(self, page: Page) -> None:
        """Nothing ran, nothing was reported, nothing left this host."""
        assert page.evaluate("window.pwned") is None
        assert page.evaluate("window.reports") == [], page.evaluate("window.reports")
        assert [url for url in self.requests if not url.startswith((self.url, "data:"))] == []
        assert self.complaints == [], self.complaints

    def close(self) -> None:
        """Leaves nothing for the next one."""
        for page in self.pages:
            page.close()
        self.context.clear_cookies()
        self.context.clear_permissions()


def until(page: Page, expression: str) -> None:
    """Waits for an expression to be true in the page: Playwright's own wait needs `eval`, which our policy forbids."""
    patience.until(lambda: page.evaluate(expression), expression)
