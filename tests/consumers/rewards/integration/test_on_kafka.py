"""From facts and rows on a real broker to rewards, through the real process."""

from dataclasses import replace

import pytest

from claw_r1.claw.data.lineage import answer_of, as_text
from claw_r1.claw.rewards.stats import as_lines
from claw_r1.consumers.rewards.config import load
from claw_r1.consumers.rewards.measures.totals import totals
from claw_r1.consumers.rewards.trial import rows_of, try_out
from claw_r1.schemas.events import RewardAssigned
from tests.consumers.published import group
from tests.consumers.rewards.fleet import fleet, write
from tests.patience import until

pytestmark = pytest.mark.kafka

SCORERS = {
    "rule/call": {"use": "length", "scope": "call"},
    "rule/next": {"use": "after", "scope": "next"},
    "rule/steps": {"use": "steps", "scope": "steps"},
    "rule/whole": {"use": "length", "scope": "trajectory"},
    "rule/group": {"use": "members", "scope": "group"},
    "rule/silent": {"use": "silent", "scope": "call"},
}


def test_every_scope_finds_its_subjects_and_names_them(log_settings, tmp_path):
    """Two trajectories of two calls: each slot claims exactly what its scope says, once, in the partition of the group."""
    write(log_settings, group("g", [1.0, 0.0]))
    with fleet(log_settings, tmp_path, SCORERS) as scorers:
        process = scorers.start()
        until(lambda: len(scorers.values()) >= 20 or process.poll() is not None)
        values = scorers.values()
        assert {len(each) for each in values.values()} == {1}, scorers.log()
        named = {
            (trajectory, call, name): value
            for (_, trajectory, call, name), ((_, value),) in ((slot, tuple(each)) for slot, each in values.items())
        }
    calls = [("g-0", "g-0-0"), ("g-0", "g-0-1"), ("g-1", "g-1-0"), ("g-1", "g-1-1")]
    expected = {(*call, name) for call in calls for name in ("rule/call", "rule/next", "rule/steps", "rule/silent")}
    expected |= {(t, None, name) for t in ("g-0", "g-1") for name in ("rule/whole", "rule/group")}
    assert set(named) == expected
    assert {named[(*call, "rule/silent")] for call in calls} == {None}
    assert named["g-0", "g-0-1", "rule/steps"] == 1.0
    assert named["g-1", None, "rule/group"] == 2.0
    assert all(isinstance(event, RewardAssigned) for event in scorers.rewards())
    assert process.returncode == 0, scorers.log()


def test_stats_and_lineage_tell_from_the_topics_alone_and_a_trial_writes_nothing(log_settings, tmp_path, monkeypatch):
    """After the process is gone: counts, cost, lag by slot; the verdict's rewards; what a scorer would say."""
    write(log_settings, group("g", [1.0, 0.0]))
    with fleet(log_settings, tmp_path, {"rule/whole": {"use": "length", "scope": "trajectory"}}) as scorers:
        scorers.start()
        until(lambda: len(scorers.values()) == 2)
        until(lambda: totals(log_settings)["rule/whole"]["lag_s"] == 0)
    (answer,) = totals(log_settings).items()
    name, entry = answer
    assert name == "rule/whole"
    assert (entry["verdicts"], entry["failed"], entry["cached"], entry["lag_s"]) == (1, 0, 1, 0.0)
    assert entry["cost"]["tokens"] == 0
    assert "rule/whole" in as_lines(totals(log_settings))[1]
    verdict = scorers.verdicts()[0]
    traced, code = answer_of(log_settings, verdict.verdict_id, every=False)
    assert (traced["kind"], code, len(traced["rewards"]), traced["judge_calls"]) == ("verdict", 0, 2, [])
    assert verdict.verdict_id in next(as_text(traced))
    before = len(scorers.rewards()), len(scorers.verdicts())
    monkeypatch.setenv("RULE_LOG", str(scorers.rule_log))
    rows = rows_of(log_settings, "g-1")
    (slot,) = load(scorers.config)
    (trial,) = try_out(log_settings, slot, rows)
    assert (trial.failed, trial.values) == (None, (5.0,))
    for scope, rule, values in (("group", "members", [(2.0, 2.0)]), ("call", "length", [(5.0,), (5.0,)])):
        changes = {"scope": scope, "use": slot.scorer.use.replace("length", rule)}
        of_scope = replace(slot, scorer=slot.scorer.model_copy(update=changes))
        assert [each.values for each in try_out(log_settings, of_scope, rows)] == values
    assert (len(scorers.rewards()), len(scorers.verdicts())) == before
    write(log_settings, group("h", [1.0]))
    assert totals(log_settings)["rule/whole"]["lag_s"] > 0
