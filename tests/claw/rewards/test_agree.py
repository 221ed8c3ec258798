"""`claw rewards agree` against a real broker."""

import json

import pytest
from typer.testing import CliRunner

from claw_r1.claw.cli import REFUSALS, app
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import VerdictRef
from tests import facts
from tests.consumers import published

pytestmark = pytest.mark.kafka


def claw(settings: LogSettings, *arguments: str, code: int = 0) -> str:
    env = {"KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers}
    done = CliRunner().invoke(app, ["rewards", "agree", *arguments, "--prefix", settings.prefix], env=env)
    assert (2 if isinstance(done.exception, REFUSALS) else done.exit_code) == code, done.output
    return done.stdout


def test_a_judge_is_held_against_people(log_settings: LogSettings) -> None:
    """By the winning slot of each subject; people alone are compared with each other; nobody to compare is exit 1."""
    version = VerdictRef(verdict_id="v", version=2)
    published.say(
        log_settings,
        *(facts.reward("g", f"t{n}", float(n % 2), source="judge", name="style", verdict=version) for n in range(8)),
        *(
            facts.reward("g", f"t{n}", value, source=f"human:{who}", name="style", revision=1)
            for who, values in (("ada", (0, 1, 0, 1, 0, 1, 1, 0)), ("ben", (0, 1, 0, 1)))
            for n, value in enumerate(map(float, values))
        ),
    )
    report = json.loads(claw(log_settings, "judge/style", "human:*/style", "--json"))
    assert (report["figures"]["subjects"], report["figures"]["observations"]) == (8, 12)
    assert report["figures"]["kappa"] == pytest.approx(1 - (2 / 12) / 0.5)
    assert list(report["by_version"]) == ["judge/style@2"]
    assert report["intervals"]["kappa"][0] <= report["figures"]["kappa"] <= report["intervals"]["kappa"][1]
    assert report == json.loads(claw(log_settings, "judge/style", "human:*/style", "--json"))
    alone = json.loads(claw(log_settings, "human:*/style", "--json"))
    assert (alone["figures"]["subjects"], alone["figures"]["kappa"], alone["unpaired"]) == (4, None, [4, 0])
    text = claw(log_settings, "judge/style", "human:*/style")
    assert "judge/style with human:*/style: 8 subjects, 12 observations" in text
    claw(log_settings, "judge/style", code=1)
    assert "judge/style@2 with human:*/style: 8 subjects" in claw(log_settings, "judge/style@2", "human:*/style")
    claw(log_settings, "judge/style@1", "human:*/style", code=1)
    claw(log_settings, "judge", "human:*/style", code=2)
