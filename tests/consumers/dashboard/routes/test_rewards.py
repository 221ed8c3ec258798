"""The rewards view's answers: what each scorer said and cost, where raters disagree as `claw rewards agree` has it, why, and a scorer tried."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, expect
from starlette.testclient import TestClient
from typer.testing import CliRunner

from claw_r1.claw.cli import app
from claw_r1.consumers.rewards.measures.agreement import agreement
from claw_r1.consumers.rewards.measures.ratings import ratings
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import ScoringFailed, VerdictKept, VerdictRef
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS, VERDICTS
from tests import facts
from tests.browser import browser
from tests.browser_session import PAYLOADS, BrowserSession
from tests.consumers.dashboard.integration.test_on_broker import stream
from tests.consumers.dashboard.stage import BrokerStage, DashboardStage, episode

__all__ = ["browser"]
GAVE_UP, SAID = "It gave no number.", "Well counted." + PAYLOADS["script"]


def length_of_reply(judged) -> float:
    """A rule."""
    return float(len(judged.calls[0].reply["content"]))


def scored(number: int, value: float | None, version: int) -> Iterator[tuple[object, VerdictKept]]:
    """A fact about trajectory t<number> of group g, and the verdict that it was made from."""
    ref = VerdictRef(verdict_id=f"v{number}.{version}", version=version)
    fields = {"envelope": facts.envelope(at_us=1000 * number + version), "source": "judge", "name": "style"}
    kept = VerdictKept(
        **fields, verdict_id=ref.verdict_id, version=version, generation=0, scope="trajectory", digest="0" * 64,
        values=() if value is None else (value,), failed="unparsable" if value is None else None,
        detail=GAVE_UP if value is None else SAID, subject=f"g/t{number}", tokens=100, seconds=0.5 * version, calls=("j/u/c",),
    )  # fmt: skip
    place = {"group_id": "g", "trajectory_id": f"t{number}"}
    if value is None:
        yield (
            ScoringFailed(**fields, **place, revision=16 + version, reason="unparsable", detail=GAVE_UP, verdict=ref),
            kept,
        )
    else:
        yield facts.reward("g", f"t{number}", value, **fields, revision=16 + version, verdict=ref), kept


def scene() -> DashboardStage:
    """Six trajectories: version 1 gives all of them 0.5, version 2 numbers and one word; a person disagrees once."""
    stage = DashboardStage(*(episode("g", f"t{n}", "Which animal?", "a cat", 1.0) for n in range(6)))
    for n in range(6):
        for value, version in ((0.5, 1), (None if n == 5 else float(n % 2), 2)):
            for fact, kept in scored(n, value, version):
                stage.tell(fact)
                stage.log.append([Outgoing(topic=VERDICTS, key=kept.verdict_id.encode(), value=encode(kept))])
        stage.tell(facts.reward("g", f"t{n}", 1.0 if n == 0 else float(n % 2), source="human:ann", name="style"))
    return stage


@pytest.fixture
def opened() -> Iterator[tuple[DashboardStage, TestClient]]:
    stage = scene()
    with stage.asked() as client:
        yield stage, client


def get(client: TestClient, path: str, **params: object) -> dict:
    answer = client.get(f"/api/v1/rewards{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_each_version_of_a_scorer_stands_for_itself(opened: tuple[DashboardStage, TestClient]) -> None:
    """Histogram, failures by word, cost and latency of its own verdicts; every bar holds what its bounds find."""
    stage, client = opened
    answer = get(client, "")
    assert answer["caught_up"]
    rows = {(row["slot"], row["version"]): row for row in answer["scorers"]}
    assert rows["judge/style", 1]["histogram"] == {"bars": [[0.5, 0.5, 6]]}
    second = rows["judge/style", 2]
    assert (second["histogram"]["bars"], second["failed"], second["mean"]) == (
        [[0, 0, 3], [1, 1, 2]],
        {"unparsable": 1},
        0.4,
    )
    assert second["cost"] == {"verdicts": 6, "tokens": 600, "price": None, "seconds_p50": 1.0, "seconds_p95": 1.0}
    for slot, version in rows:
        for low, high, many in rows[slot, version]["histogram"]["bars"]:
            within = {} if version is None else {"version": version}
            assert get(client, "/said", slot=slot, low=low, high=high, **within)["total"] == many
    before = get(client, "/said", slot="judge/style", version=2, low=1)["total"]
    for fact, _ in scored(4, 1.0, 2):
        stage.tell(facts.reward("g", "t4", 1.0, source="judge", name="style", revision=99, verdict=fact.verdict))
    assert get(client, "/said", slot="judge/style", version=2, low=1)["total"] == before + 1  # the last word counts


def test_a_backfill_of_a_version_replaces_what_it_said(opened: tuple[DashboardStage, TestClient]) -> None:
    """Generations stand together: each subject counts once, by the word that ranks highest; a failure outranks no value."""
    stage, client = opened
    for number, value in ((0, 1.0), (1, 0.25)):
        (fact, _), *_ = scored(number, value, 1)
        ref = VerdictRef(verdict_id=f"b{number}", version=1, generation=1)
        stage.tell(replace(fact, revision=1017, verdict=ref))
    (failure, _), *_ = scored(2, None, 1)
    stage.tell(replace(failure, revision=1, verdict=VerdictRef(verdict_id="b2", version=1, generation=1)))
    (row,) = [row for row in get(client, "")["scorers"] if (row["slot"], row["version"]) == ("judge/style", 1)]
    assert (row["subjects"], row["failed"], row["mean"]) == (6, {}, (1.0 + 0.25 + 4 * 0.5) / 6)
    assert row["histogram"] == {"bars": [[0.25, 0.25, 1], [0.5, 0.5, 4], [1.0, 1.0, 1]]}
    for low, high, many in row["histogram"]["bars"]:
        assert get(client, "/said", slot="judge/style", version=1, low=low, high=high)["total"] == many
    assert get(client, "/said", slot="judge/style", version=1, failed="unparsable")["total"] == 0


def test_many_values_are_bars_that_hold_all_of_them(opened: tuple[DashboardStage, TestClient]) -> None:
    stage, client = opened
    stage.tell(*(facts.reward("h", f"t{n}", n / 7, source="rule", name="length") for n in range(100)))
    (row,) = [row for row in get(client, "")["scorers"] if row["slot"] == "rule/length"]
    bars = row["histogram"]["bars"]
    assert (len(bars), sum(many for *_, many in bars)) == (20, 100)
    assert all(
        get(client, "/said", slot="rule/length", low=low, high=high)["total"] == many for low, high, many in bars
    )


def test_agreement_is_that_of_the_command(opened: tuple[DashboardStage, TestClient]) -> None:
    """The figures of each two raters are those that `claw rewards agree` works out of all facts."""
    stage, client = opened
    (pair,) = get(client, "/agreement")["pairs"]
    assert (pair["left"], pair["right"]) == ("judge/style", "human:*/style")
    events = list(stage.words())
    figures = agreement(ratings(events, "judge/style"), ratings(events, "human:*/style"), resamples=0).figures
    assert pair["figures"]["agree"] == figures.agree == 0.8
    whole = get(client, "/agreement", left="judge/style@1", right="human:*/style")
    assert whole["figures"]["agree"] == 0.0
    assert "95 %" in "".join(whole["lines"])


def test_what_cannot_be_is_refused_in_a_sentence(opened: tuple[DashboardStage, TestClient]) -> None:
    _, client = opened
    assert "no verdict nobody" in client.get("/api/v1/rewards/verdict?id=nobody").json()["detail"]
    body = {"slot": "rule/length", "places": [["g", "t0"]]}
    answer = client.post("/api/v1/rewards/trial", json=body)
    assert (answer.status_code, "--rewards" in answer.json()["detail"]) == (422, True)


@pytest.mark.process
@pytest.mark.slow
def test_a_bar_leads_to_the_evidence(browser: Browser) -> None:
    """By the mouse: a bar, what was said within it, why; what a judge wrote is text."""
    with scene().served() as url:
        one = BrowserSession(browser, url)
        page = one.open("/rewards", waits_for=".bars button")
        page.get_by_role("group", name="values of judge/style@2").get_by_role("button", name="1: 2").click()
        expect(page.locator(".said-list li")).to_have_count(2)
        page.get_by_role("button", name="why").first.click()
        expect(page.locator(".verdict")).to_contain_text("Well counted.")
        page.get_by_role("button", name="judge/style with human:*/style").click()
        expect(page.locator(".report")).to_contain_text("weighted_kappa")
        page.get_by_role("button", name="unparsable").click()
        expect(page.locator(".said-list li")).to_have_count(1)
        one.clean(page)
        one.close()


@pytest.mark.kafka
@pytest.mark.process
@pytest.mark.slow
def test_a_rule_is_tried_and_nothing_is_written(log_settings: LogSettings, tmp_path: Path) -> None:
    """The page says what `claw rewards test` says of the same file, and claw.rewards stays as it was."""
    config = tmp_path / "rewards.yaml"
    rule = "use: tests.consumers.dashboard.routes.test_rewards:length_of_reply, version: 1, scope: trajectory"
    config.write_text(f"scorers:\n  rule/length: {{{rule}}}\n")
    with closing(EventProducer(log_settings)) as producer:
        for event in episode("g", "t0", "Which animal?", "a cat", 1.0):
            producer.publish_now(CALLS, group_key("g"), event)
    stream(log_settings)
    stage = BrokerStage(log_settings)
    with stage.asked(rewards=config) as client:
        assert get(client, "")["tries"] == ["rule/length"]
        body = {"slot": "rule/length", "places": [["g", "t0"]]}
        answer = client.post("/api/v1/rewards/trial", json=body)
        (tried,) = answer.json()["trials"]
        refused = client.post("/api/v1/rewards/trial", json=body | {"slot": "no/slot"})
        assert (refused.status_code, "no scorer no/slot" in refused.json()["detail"]) == (422, True)
    words = ["rewards", "test", "--on", "t0", "--config", str(config), "--json", "--prefix", log_settings.prefix]
    told = CliRunner().invoke(app, words, env={"KAFKA_BOOTSTRAP_SERVERS": log_settings.bootstrap_servers})
    assert told.exit_code == 0, told.output
    (line,) = [line for line in told.stdout.splitlines() if line.startswith("{")]  # logs stand beside it
    assert json.loads(line)["values"] == tried["values"] != []
    assert list(read_topics(log_settings, [REWARDS, VERDICTS])) == []
