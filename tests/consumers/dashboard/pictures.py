"""Pictures of every view: `make pictures`, or `python -m tests.consumers.dashboard.pictures [DIR] [--docs]`.

Each at 1440 and at 360 px, light and dark, of a whole run (`picture_scene`). `--docs`: those of docs/dashboard, smaller, instead.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser import ARGUMENTS, chromium
from tests.browser_session import until
from tests.consumers.dashboard.picture_scene import BATCHES, RUN, picture_stage
from tests.debian_programs import ROOT

GROUP, LAST = "sheep-14-1", BATCHES - 1
MEMBER = f"g={GROUP}&t={GROUP}.0"
SPEC = "group_size%3A%204%0Agroups_per_batch%3A%203%0Astaleness_max%3A%201%0A"
VIEWS = {
    "overview": f"/overview?run={RUN}",
    "overview-all": "/overview?run=*",
    "explorer": "/explorer?kind=trajectories",
    "explorer-groups": "/explorer?kind=groups",
    "group": f"/group?g={GROUP}",
    "trajectory": f"/trajectory?{MEMBER}",
    "tokens": f"/tokens?{MEMBER}",
    "record": f"/tokens?{MEMBER}&record=1",
    "curation": "/curation",
    "curation-pair": "/curation?mode=pair",
    "curation-filter": "/curation?tab=filter&channel=train",
    "curation-history": "/curation?tab=history",
    "lab": "/lab",
    "runs": f"/runs?run={RUN}",
    "lineage": f"/runs?lineage={RUN}%2F{LAST}",
    "batch": f"/batch?run={RUN}&n={LAST}",
    "batch-lab": f"/batch?run={RUN}&n={LAST}&tab=lab&spec={SPEC}",
    "rewards": "/rewards?slot=judge%2Fstyle&low=0.2&high=0.3",
    "operations": "/operations",
}
DOCS = {name: VIEWS[name] for name in ("overview", "explorer", "trajectory", "tokens", "curation", "runs", "batch")} | {
    "lab": VIEWS["batch-lab"]
}
READ = (
    "!document.querySelector('main .reading') && document.querySelector('header .stream.live') &&"
    "performance.now() - Math.max(...performance.getEntriesByType('resource').map((each) => each.responseEnd)) > 500"
)


@contextmanager
def opened() -> Iterator[tuple[Browser, str]]:
    """A browser, and the address of the scene."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        with picture_stage(Path(folder)).served() as url:
            yield browser, url
            browser.close()  # before the page's server, which waits for its streams


def draw(page: Page, url: str, path: Path, *, whole: bool) -> None:
    """One view, once it has read what it shows."""
    page.goto(url)
    until(page, READ)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path, full_page=whole)
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    print(f"{path}{f'  WIDER than the screen by {wide} px' if wide > 0 else ''}", flush=True)


def main() -> None:
    """Draws them."""
    parser = argparse.ArgumentParser(prog="pictures", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / ".tools/pictures")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--only", choices=VIEWS, action="append")
    options = parser.parse_args()
    with opened() as (browser, url):
        if options.docs:
            page = browser.new_page(viewport={"width": 1100, "height": 700}, color_scheme="light")
            for name, address in DOCS.items():
                draw(page, url + address, ROOT / f"docs/dashboard/{name}.png", whole=False)
            return
        for width, scheme in product((1440, 360), ("light", "dark")):
            page = browser.new_page(
                viewport={"width": width, "height": 900 if width > 360 else 740}, color_scheme=scheme
            )
            for name in options.only or VIEWS:
                draw(page, url + VIEWS[name], options.folder / f"{name}-{width}-{scheme}.png", whole=True)
            page.close()


if __name__ == "__main__":
    main()
