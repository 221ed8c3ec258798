"""The alerts of infra/alerts for tests: what they are, what they ask for, and Prometheus's own program that judges them."""

import re
import shutil
from collections.abc import Iterator
from functools import cache

import pytest
import yaml

from tests.debian_programs import ROOT, unpacked

RULES = ROOT / "infra" / "alerts" / "claw.yaml"
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@cache
def found_promtool() -> str | None:
    """Its program: the PATH's, else Debian's below `.tools/`."""
    if known := shutil.which("promtool"):
        return known
    try:
        return unpacked("promtool.sh")
    except FileNotFoundError:
        return None


def promtool() -> str:
    """The same; skips, by name, where there is none."""
    return found_promtool() or pytest.skip("no promtool, and Debian's package is not to be had (infra/promtool.sh)")


def asked_for(expr: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yields each metric that an expression names, with its matchers: label, `~` of a pattern, value."""
    for name, matchers in re.findall(r"\b(up|(?:claw|process)_[a-z0-9_]+)\b(?:\{([^}]*)\})?", expr):
        found = re.findall(r'(\w+)=(~?)"([^"]*)"', matchers)
        assert matchers.count("=") == len(found), matchers
        yield name, found


ASKED = {name for rule in ALERTS for name, _ in asked_for(rule["expr"])}
"""The metrics that rules name."""
