"""The alerts for Prometheus: each is heard and not overheard, asks for what there is, and names a page that helps."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.debian import unpacked
from tests.docs.metrics_page import ROOMS, described

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "infra" / "alerts" / "claw.yaml"
PARTS = ("**It means**", "**Look**", "**Do**", "**It worked when**")
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@cache
def promtool() -> str:
    """Its program: the PATH's, else Debian's below `.tools/`. Skips, by name, where there is none."""
    if known := shutil.which("promtool"):
        return known
    try:
        return unpacked("promtool.sh")
    except FileNotFoundError as none:
        pytest.skip(f"no promtool: {none}")


def test_each_fault_raises_its_alert_and_health_none() -> None:
    """Prometheus's own test of rules, over the scenes of claw.test.yaml: healthy, slow, evaluated, and each fault."""
    tests = RULES.with_name("claw.test.yaml")
    done = subprocess.run([promtool(), "test", "rules", str(tests)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_scene() -> None:
    """A rule that no scene of claw.test.yaml raises would be one that nobody ever saw."""
    scenes = RULES.with_name("claw.test.yaml").read_text()
    assert [rule["alert"] for rule in ALERTS if f'alertname="{rule["alert"]}"' not in scenes] == []


def test_alerts_ask_for_metrics_and_labels_that_there_are() -> None:
    """Each name is one that a room serves, and each label in its braces is one of that metric's."""
    known: dict[str, set[str]] = {}
    for registry in ROOMS.values():
        for row in described(registry()):
            known[row.name] = {*row.labels, "instance", "job"}
    for rule in ALERTS:
        asked = re.findall(r"\b(claw_[a-z_]+)(?:\{([^}]*)\})?", rule["expr"])
        assert asked or "up{" in rule["expr"]
        for name, matchers in asked:
            assert name in known, (rule["alert"], name)
            labels = set(re.findall(r"(\w+)\s*=~?", matchers))
            assert labels <= known[name], (rule["alert"], name, labels)


@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_every_alert_names_a_page_that_helps(rule: dict) -> None:
    """The section says what it means, where to look, what to do, and how one knows that it worked; commands stand in it."""
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    sections = re.split(r"^## ", (ROOT / page).read_text(), flags=re.MULTILINE)[1:]
    (section,) = [one for one in sections if one.splitlines()[0].lower() == anchor]
    assert [part for part in PARTS if part not in section] == []
    assert rule["labels"]["severity"] in {"page", "ticket"}
