"""rewards.yaml: what it says is what runs, and what cannot run is one line with file, slot and field."""

import pytest
from structlog.testing import capture_logs

from claw_r1.consumers.rewards.app import warn_of_timeouts
from claw_r1.consumers.rewards.config import ConfigRefused, load
from claw_r1.consumers.rewards.settings import RewardsSettings
from tests.consumers.rewards.in_memory import slot_of

GOOD = """
scorers:
  rule/exact: {use: "my:rule", version: 1, scope: trajectory, timeout_s: 2, budget: {tokens_per_day: 5M}, since: now}
  rule/other.name: {use: "my:rule", version: 2, scope: call, channels: [val]}
"""
ONE = "scorers: {{rule/exact: {{use: 'my:rule', version: 1, scope: call{more}}}}}"
REFUSED = {
    "scorers: {}": "it names no scorer",
    "[]": "it names no scorer",
    "scorers:\n  rule/a: {use: m:f, version: 1, scope: call}\n  rule/a: {use: m:g, version: 1, scope: call}": "rule/a stands there twice (line 3)",
    "scorers: {rule/a: {version: 2026-02-30}}": "day is out of range",
    "scorers: {rule/a: {use: m:f, scope: call}}": "rule/a: version: a value is required",
    "scorers: {rule/a: {version: 1, scope: call}}": "rule/a: use: a value is required",
    "scorers: {rule: {use: m:f, version: 1, scope: call}}": "rule: a slot is source/name",
    "scorers: {'human:ann/style': {use: m:f, version: 1, scope: call}}": "a slot is source/name",
    "scorers: {agent/completion: {use: m:f, version: 1, scope: call}}": "the completion's own",
    "scorers: {rule/a.g1: {use: m:f, version: 1, scope: call}}": "without .g1 at its end",
    "scorers: {rule/a: 1}": "rule/a: its settings are a mapping",
    "scorers: {rule/a: {use: m:f, version: 1, scope: word}}": "rule/a: scope:",
    ONE.format(more=", colour: red"): "rule/exact: colour: there is no such setting",
    ONE.format(more=", budget: {tokens_per_day: lots}"): "rule/exact: budget.tokens_per_day:",
    ONE.format(more=", budget: {tokens_per_day: .nan}"): "rule/exact: budget.tokens_per_day:",
    ONE.format(more=", since: yesterday"): "rule/exact: since:",
    ONE.format(more=", timeout_s: 0"): "rule/exact: timeout_s:",
    "scorers: {rule/a: {use: m:f, version: 1, scope: call}}\nscorer: {}": "scorer: there is no such setting",
    "scorers: [": "while parsing",
}


def test_a_file_names_slots_in_its_order(tmp_path):
    """Each with its kind's settings, and with those that every slot has."""
    path = tmp_path / "rewards.yaml"
    path.write_text(GOOD)
    exact, other = load(path)
    assert (exact.name, exact.scorer.timeout_s, exact.options.since) == ("rule/exact", 2.0, "now")
    assert exact.options.budget is not None
    assert exact.options.budget.tokens_per_day == 5_000_000
    assert other.options.channels == ("val",)
    assert other.group_id("claw") == "claw.rewards.rule.other.name"


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_run_is_one_line(tmp_path, text):
    """File, slot, field, and what is wrong."""
    path = tmp_path / "rewards.yaml"
    path.write_text(text)
    with pytest.raises(ConfigRefused) as refused:
        load(path)
    line = str(refused.value)
    assert line.startswith(str(path))
    assert "\n" not in line
    assert REFUSED[text] in line


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    """And names it."""
    with pytest.raises(ConfigRefused, match=r"nothing\.yaml: is not there; docs/rewards\.md shows one"):
        load(tmp_path / "nothing.yaml")


def test_a_verdict_that_may_take_longer_than_its_poll_is_warned_of():
    """The group would give the partitions away before it comes, and every owner after it, too."""
    with capture_logs() as lines:
        warn_of_timeouts(
            [slot_of("call", timeout_s=50), slot_of("next", timeout_s=51)], RewardsSettings(work_timeout_s=100)
        )
    assert [(line["event"], line["slot"]) for line in lines] == [("rewards_timeout_too_long", "rule/next")]


JUDGE = "scorers: {{judge/it: {{use: judge, version: {version}, scope: call, model: m, rubric: {rubric}{more}}}}}"


def test_a_digest_is_of_what_decides_what_is_said(tmp_path):
    """Settings and the rubric's text, in whatever order and wherever the file lies; not how fast, how dear or by which way."""
    rubric = "---\nanswer: number\nscale: [0, 10]\n---\nHow well?"

    def digest(folder="a", text=rubric, **fields):
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        (place / "r.md").write_text(text)
        config = place / "rewards.yaml"
        config.write_text(JUDGE.format(**{"version": 1, "rubric": "r.md", "more": "", **fields}))
        return load(config)[0].digest

    first = digest()
    assert first == digest("b")
    assert first == digest(more=", timeout_s: 3, concurrency: 2, url: 'http://other:1', price_per_million: 2")
    assert digest(more=", body: {a: 1, b: 2}") == digest(more=", body: {b: 2, a: 1}")
    others = [
        digest(text=rubric + " Really?"),
        digest(more=", votes: 3"),
        digest(version=2),
        digest(more=", soft: true"),
    ]
    assert len({first, *others}) == 5
