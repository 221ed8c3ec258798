"""The history scored again on a real broker, through the command; and what a rebuild of the pool asks of scorers: nothing."""

import json
import os
import subprocess
import sys
from functools import partial

import pytest
import yaml

from claw_r1.schemas.events import RewardAssigned
from claw_r1.schemas.topics import CALLS
from tests import facts
from tests.claw.pooled import write
from tests.consumers.published import group
from tests.consumers.rewards.fleet import fleet
from tests.consumers.rewards.kinds.scripted_judge import says, scripted
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.kafka

SCORERS = {"rule/call": {"use": "length", "scope": "call"}, "rule/whole": {"use": "length", "scope": "trajectory"}}


def claw(scorers, *arguments):
    """Exit code, the object that it printed, and what stands on stderr. A process of its own, which makes itself nice."""
    env = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": scorers.settings.bootstrap_servers,
        "CLAW_LOG_PREFIX": scorers.settings.prefix,
        "CLAW_REWARDS_CONFIG": str(scorers.config),
        "RULE_LOG": str(scorers.rule_log),
    }
    command = [sys.executable, "-m", "claw_r1.claw.cli", *arguments, "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def again(scorers, *options, slot="rule/call"):
    """`claw rewards backfill`."""
    return claw(scorers, "rewards", "backfill", slot, *options)


def raise_version(scorers, slot, **fields):
    """As a person edits the file."""
    config = yaml.safe_load(scorers.config.read_text())
    config["scorers"][slot] |= fields
    scorers.config.write_text(yaml.safe_dump(config))


def live(scorers, rewards):
    """A scorer that judged what is there, and ended."""
    process = scorers.start()
    until(lambda: len(scorers.values()) >= rewards or process.poll() is not None)
    process.terminate()
    assert process.wait(30) == 0, scorers.log()


def history(settings, groups=3):
    """Groups of two trajectories of two calls. The words are equal in all, the tasks are not: two contents per group."""
    for n in range(groups):
        _, *events = group(f"g{n}", [1.0, 0.0])
        write(settings, [facts.opened(f"g{n}", expected_size=2, task=json.dumps({"n": n})), *events])


def test_the_history_gets_a_second_word_that_outranks_the_first(log_settings, tmp_path):
    """Dry run asks nobody; the backfill scores each subject once, in its own group; a second run has nothing to do."""
    history(log_settings)
    with fleet(log_settings, tmp_path, SCORERS) as scorers:
        live(scorers, 18)
        asked_live = sum(scorers.questions().values())
        raise_version(scorers, "rule/whole", version=2)
        code, cost, _ = again(scorers, "--generation", "1", "--dry-run", slot="rule/whole")
        assert (code, cost["subjects"], cost["tokens"], cost["basis"]) == (
            0,
            6,
            0,
            "tests.consumers.rewards.own_rules costs no tokens",
        )
        assert sum(scorers.questions().values()) == asked_live
        code, answer, errors = again(scorers, "--generation", "1", slot="rule/whole")
        assert code == 0, errors
        assert (answer["done"], answer["left"], answer["judged"]) == (True, 0, cost["verdicts"])
        events = [event for event in scorers.rewards() if event.name == "whole"]
        assert len(events) == 12
        second = [event for event in events if event.verdict.generation == 1]
        assert len({(event.group_id, event.trajectory_id) for event in second}) == 6
        assert {event.verdict.version for event in second} == {2}
        first = max(event.revision for event in events if event.verdict.generation == 0)
        assert min(event.revision for event in second) > first
        judged = sum(scorers.questions().values())
        code, answer, errors = again(scorers, "--generation", "1", slot="rule/whole")
        assert (code, answer["judged"]) == (0, 0)
        assert "goes on where it was (0 records to go)" in errors
        assert sum(scorers.questions().values()) == judged


def test_a_stopped_backfill_goes_on_where_it_was(log_settings, tmp_path):
    """--to stops at an offset; later records wait for the next command, and nobody is asked twice."""
    history(log_settings)
    with fleet(log_settings, tmp_path, SCORERS) as scorers:
        code, first, errors = again(scorers, "--generation", "1", "--to", "3")
        assert code == 0, errors
        topic = log_settings.catalogue().name(CALLS)
        assert first["offsets"][topic] == first["to"][topic]
        code, _, errors = again(scorers, "--generation", "1")
        assert code == 0, errors
        questions = scorers.questions()
        assert sum(questions.values()) == 6
        values = scorers.values()
        assert len(values) == 12
        assert {len(each) for each in values.values()} == {1}


def test_a_filter_is_as_that_of_the_pool(log_settings, tmp_path):
    """Only subjects of rows that the filter lets through are judged."""
    history(log_settings)
    with fleet(log_settings, tmp_path, SCORERS) as scorers:
        code, answer, errors = again(
            scorers, "--generation", "1", "--group", "g1", "--reward-min", "0.5", slot="rule/whole"
        )
        assert (code, answer["done"]) == (0, True), errors
        assert {slot[:2] for slot in scorers.values()} == {("g1", "g1-0")}
        assert all(isinstance(event, RewardAssigned) for event in scorers.rewards())


def test_a_budget_ends_it_before_the_end_and_the_next_command_goes_on(log_settings, tmp_path):
    """12 tokens an answer, 25 to spend: three are asked and kept, at most one beyond; what was paid is not asked again."""
    history(log_settings, groups=6)
    (tmp_path / "r.md").write_text("---\nanswer: number\nscale: [0, 10]\n---\nHow well?")
    fields = {"use": "judge", "version": 1, "scope": "trajectory", "model": "m", "rubric": "r.md"}
    with scripted(lambda _, __: says("7")) as judge, fleet(log_settings, tmp_path, {}) as scorers:
        own = {**fields, "url": judge.url, "budget": {"tokens_per_day": 5}}
        scorers.config.write_text(yaml.safe_dump({"scorers": {"judge/it": own}}))
        again_it = partial(again, scorers, "--generation", "1", slot="judge/it")
        _, cost, _ = again_it("--dry-run")
        code, first, errors = again_it("--budget-tokens", "25")
        assert (code, first["budget_spent"], first["done"]) == (1, True, False), errors
        assert (len(judge.requests), first["tokens"], len(scorers.verdicts())) == (3, 36, 3)
        code, rest, errors = again_it("--budget-tokens", "1000")
        assert (code, rest["budget_spent"], rest["done"]) == (0, False, True), errors
        assert len(judge.requests) == cost["verdicts"] > 3
        assert {verdict.failed for verdict in scorers.verdicts()} == {None}


def test_what_needs_its_environment_is_refused(log_settings, tmp_path):
    """`pure: false`: one line, exit code 2, nobody asked."""
    with fleet(log_settings, tmp_path, {"rule/call": {"use": "moody", "pure": False}}) as scorers:
        code, _, errors = again(scorers, "--generation", "1")
        assert code == 2
        assert "rule/call: pure: false" in errors.splitlines()[-1]


def test_a_rebuilt_pool_asks_no_scorer(log_settings, tmp_path):
    """Scorers that start on generation 2 of the pool read every row of it again, and ask nobody, and write nothing."""
    history(log_settings)
    with fleet(log_settings, tmp_path, SCORERS) as scorers:
        live(scorers, 18)
        questions, rewards = sum(scorers.questions().values()), len(scorers.rewards())
        code, _, errors = claw(scorers, "rebuild")
        assert code == 0, errors
        process = scorers.start(CLAW_LOG_GENERATION="2")
        until(lambda: process.poll() is not None or finished(scorers))
        process.terminate()
        assert process.wait(30) == 0, scorers.log(1)
        assert sum(scorers.questions().values()) == questions
        assert len({event.envelope.event_id for event in scorers.rewards()}) == rewards


def finished(scorers):
    """Whether the group of rule/whole has committed every row of generation 2."""
    from claw_r1.eventlog.kafka.log import KafkaLog
    from claw_r1.schemas.topics import TRAJECTORIES

    settings = scorers.settings.model_copy(update={"generation": 2})
    kafka = KafkaLog(settings)
    ends = kafka.end_offsets([TRAJECTORIES])
    committed = kafka.committed_offsets(f"{settings.prefix}.rewards.rule.whole", [TRAJECTORIES], [p for _, p in ends])
    return all((committed[place] or 0) >= end for place, end in ends.items())
