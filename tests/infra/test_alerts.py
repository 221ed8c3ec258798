"""The alerts for Prometheus: each is heard and not overheard, asks for what there is, and names a page that helps."""

import re
import subprocess
from typing import get_args

import pytest

from claw_r1.datapool.batch.eligibility import TOO_STALE
from claw_r1.schemas.events import WorkerState
from claw_r1.streams.partition.state import FoldOutcome
from claw_r1.trainer.metrics import LAST, PHASES
from tests.debian_programs import ROOT
from tests.docs.metrics_page import ROOMS, described
from tests.infra.alerts import ALERTS, RULES, asked_for, promtool

PARTS = ("**It means**", "**Look**", "**Do**", "**It worked when**")
VALUES = {
    "phase": {*PHASES},
    "outcome": {*get_args(FoldOutcome)},
    "state": {*get_args(WorkerState)},
    "metric": {*LAST, *(f"nonfinite_{name}" for name in LAST)},
    "reason": {TOO_STALE},
    "job": {"claw-.*"},
    "profile": {".+"},
}
"""The values that the code gives labels; no rule asks for another one."""


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
    """Each name is one that a room serves, each label in its braces is one of that metric's, and each value one of the code's."""
    known = {"up": {"instance", "job", "profile"}}
    for registry in ROOMS.values():
        for row in described(registry()):
            known[row.name] = {*row.labels, "instance", "job"}
    for rule in ALERTS:
        asked = list(asked_for(rule["expr"]))
        assert asked, rule["alert"]
        for name, matchers in asked:
            assert name in known, (rule["alert"], name)
            for label, pattern, value in matchers:
                assert label in known[name], (rule["alert"], name, label)
                values = {value} if label == "job" or not pattern else set(value.split("|"))
                assert values <= VALUES[label], (rule["alert"], label, values)


@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_every_alert_names_a_page_that_helps(rule: dict) -> None:
    """The section says what it means, where to look, what to do, and how one knows that it worked; commands stand in it."""
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    sections = re.split(r"^## ", (ROOT / page).read_text(), flags=re.MULTILINE)[1:]
    (section,) = [one for one in sections if one.splitlines()[0].lower() == anchor]
    assert [part for part in PARTS if part not in section] == []
    assert rule["labels"]["severity"] in {"page", "ticket"}
