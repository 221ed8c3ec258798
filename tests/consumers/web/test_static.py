"""What is vendored is what the lock says, and our own code never writes HTML."""

import json
import re
from hashlib import sha256
from pathlib import Path

CONSUMERS = Path(__file__).resolve().parents[3] / "consumers"
VENDOR = CONSUMERS / "web/static/vendor"
OURS = [path for path in CONSUMERS.rglob("static/**/*.*") if VENDOR not in path.parents]
WRITES_HTML = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|setHTML|DOMParser"
)
ELSEWHERE = re.compile(r"https?://|(?<![:\w])//\w")


def test_vendored_files_are_those_of_the_lock() -> None:
    """Every file is in the lock with its digest, and the other way round; each has a licence beside it."""
    lock = json.loads((VENDOR / "lock.json").read_text())
    digests = {name: digest for entry in lock.values() for name, digest in entry["sha256"].items()}
    assert {
        path.name: sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir() if path.name != "lock.json"
    } == digests
    for name, entry in lock.items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", entry["version"]), name
        assert entry["license"] in ("MIT", "Apache-2.0"), name
        assert any(file.startswith("LICENSE.") for file in entry["sha256"]), name


def test_our_code_writes_no_html() -> None:
    """No sink that turns text into markup or code."""
    assert OURS
    assert {
        path.name: WRITES_HTML.findall(path.read_text()) for path in OURS if WRITES_HTML.search(path.read_text())
    } == {}


def test_nothing_comes_from_elsewhere() -> None:
    """No file of ours names another host, and none has styles or handlers inline, which the policy forbids."""
    for path in OURS:
        text = path.read_text()
        code = re.sub(r"(?m)^\s*//.*$|\s// .*$", "", text) if path.suffix == ".js" else text
        assert not ELSEWHERE.search(code), path
        assert path.suffix != ".html" or not re.search(
            r"\son\w+=|\sstyle=|<style|<script(?! type=\"(importmap|module)\")", text
        ), path


def test_the_files_are_in_the_package() -> None:
    """The wheel takes whole packages; nothing ignores the static files."""
    ignored = (CONSUMERS.parent / ".gitignore").read_text().split()
    assert not {"static/", "vendor/", "*.js", "*.css", "*.json"} & set(ignored)
