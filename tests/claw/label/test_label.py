"""`claw label` against a real broker: what a person types, what is published, and what stands afterwards."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from claw_r1.claw.cli import REFUSALS, app
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.label.label import as_line as label_line
from claw_r1.claw.label.label import is_of, subject_of
from claw_r1.claw.pool.append import append
from claw_r1.claw.rewards.trial import as_line as trial_line
from claw_r1.consumers.rewards.trial import Trial
from claw_r1.datapool.feedback import FeedbackSubject, Remark, Signature, feedback_events
from claw_r1.datapool.personal_words import Feedback
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import TrajectoryRecord
from claw_r1.schemas.topics import REWARDS
from tests.broker import new_log
from tests.claw import pooled
from tests.facts import reward
from tests.trainer.pooled import group

Said = dict[str, object]


def row(group_id: str, trajectory_id: str, *calls: str) -> TrajectoryRecord:
    return TrajectoryRecord(group_id=group_id, trajectory_id=trajectory_id, status="open", ready=False, calls=calls)


ROWS = [row("g", "t", "c1", "c2"), row("g", "u", "c1"), row("h", "t", "c3"), row("s", "s", "x/y")]


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("u", ("g", "u", None)),
        ("g/t", ("g", "t", None)),
        ("c2", ("g", "t", "c2")),
        ("g/u/c1", ("g", "u", "c1")),
        ("s", ("s", "s", None)),
        ("x/y", ("s", "s", "x/y")),
    ],
)
def test_an_id_names_one_subject(name: str, subject: tuple[str, str, str | None]) -> None:
    """A call, a trajectory, or its place written out."""
    assert subject_of(ROWS, name) == FeedbackSubject(*subject)
    assert is_of(subject_of(ROWS, name), name)


@pytest.mark.parametrize(
    ("name", "word"), [("t", "g/t, h/t"), ("c1", "g/t/c1, g/u/c1"), ("g", "no call or trajectory")]
)
def test_an_id_that_names_none_or_several_is_refused(name: str, word: str) -> None:
    """With what it may mean."""
    with pytest.raises(CannotRun, match=word):
        subject_of(ROWS, name)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ([], "give --thumb, --score, --prefer, --edit or --comment"),
        (["--thumb", "sideways"], "--thumb is up or down"),
        (["--tie"], "--prefer OTHER"),
        (["--thumb", "up"], "who judges"),
    ],
)
def test_what_is_wrong_with_the_words_is_said_before_who_says_them(options: list[str], word: str) -> None:
    """By options that the command has; no log is asked."""
    refused = CliRunner().invoke(app, ["label", "t1", *options], env={"USER": None})
    assert isinstance(refused.exception, CannotRun)
    assert word in str(refused.exception)


def filled(settings: LogSettings) -> LogSettings:
    """A pool of one group with two trajectories of two calls."""
    pooled.write(settings, group("g", [0.0, 1.0]))
    return settings


@pytest.fixture
def labelled(log_settings: LogSettings) -> LogSettings:
    """A pool of the test's own, in which it may speak."""
    return filled(log_settings)


@pytest.fixture(scope="module")
def shared(broker: str) -> LogSettings:
    """A pool for tests that change nothing in it."""
    return filled(new_log(broker))


def label(settings: LogSettings, *arguments: str, code: int = 0, stdin: str | None = None) -> list[Said]:
    env = {"KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers, "USER": "ada"}
    command = ["label", *arguments, "--prefix", settings.prefix, "--json"]
    done = CliRunner().invoke(app, command, env=env, input=stdin)
    assert (2 if isinstance(done.exception, REFUSALS) else done.exit_code) == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def standing(settings: LogSettings) -> set[tuple[str, str, str]]:
    words = Feedback(record.event() for record in read_topics(settings, [REWARDS]))
    return {(word.who, word.kind, str(word.subject)) for word in words.standing()}


@pytest.mark.kafka
def test_a_person_speaks_takes_back_and_reads_what_was_said(labelled: LogSettings, tmp_path: Path) -> None:
    """One command is one act; an undo takes the last act back of that person on that subject, and all stays to be read."""
    reply = tmp_path / "better.txt"
    reply.write_text("Better.\n")
    label(labelled, "g/t0", "--thumb", "up", "--score", "style=0.8", "--comment", "nice")
    label(labelled, "g/t0/c0", "--edit", str(reply), "--who", "ben")
    label(labelled, "g/t0", "--prefer", "t1", "--comment", "shorter")
    first = {
        ("ada", "thumb", "g/t0"),
        ("ada", "score", "g/t0"),
        ("ben", "edit", "g/t0/c0"),
        ("ada", "preference", "g/t1"),
    }
    assert standing(labelled) == first
    (dry,) = label(labelled, "g/t1", "--thumb", "down", "--dry-run")
    assert dry["dry_run"] is True
    assert standing(labelled) == first
    (undone,) = label(labelled, "g/t0", "--undo")
    assert [event["outcome"] for event in undone["events"]] == ["withdrawn"]  # type: ignore[attr-defined]  # an attribute that only this kind has
    label(labelled, "g/t0", "--undo")
    assert standing(labelled) == {("ben", "edit", "g/t0/c0")}
    label(labelled, "g/t0", "--undo", code=1)
    words = label(labelled, "t0", "--list")
    assert [word["stands"] for word in words].count(True) == 1
    assert "g/t1 is preferred to g/t0" in [word["says"] for word in words]
    assert [word["says"] for word in words if word["withdrawal"]].count("g/t0: thumb withdrawn") == 1
    assert len(label(labelled, "g", "--list")) == len(words)
    label(labelled, "nobody", "--list", code=1)


@pytest.mark.kafka
def test_a_later_word_counts_under_a_clock_behind(labelled: LogSettings) -> None:
    """What is printed as standing stands, though the person's earlier word was given where the clock was ahead."""
    ahead = Signature(who="zoe", producer="claw dashboard", at_us=now_us() + 600_000_000, act_id="ahead")
    append(labelled, REWARDS, feedback_events(FeedbackSubject("g", "t1"), Remark(thumb=True), ahead))
    (said,) = label(labelled, "g/t1", "--thumb", "down", "--who", "zoe")
    words = Feedback(record.event() for record in read_topics(labelled, [REWARDS])).standing()
    assert [word.act_id for word in words if word.who == "zoe"] == [said["act_id"]]
    label(labelled, "g/t1", "--undo", "--who", "zoe")


@pytest.mark.kafka
def test_a_message_is_read_from_json_and_a_text_from_stdin(labelled: LogSettings, tmp_path: Path) -> None:
    """With tool calls where the reply calls a tool."""
    message = {
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    file = tmp_path / "better.json"
    file.write_text(json.dumps(message))
    for argument, stdin in ((str(file), None), ("-", "typed\n")):
        label(labelled, "g/t1/c1", "--edit", argument, "--who", "eve", stdin=stdin)
    edits = [
        word.message
        for word in Feedback(r.event() for r in read_topics(labelled, [REWARDS])).history(source="human:eve")
    ]
    assert edits == [{**message, "role": "assistant"}, {"role": "assistant", "content": "typed"}]


@pytest.mark.kafka
@pytest.mark.parametrize(
    "arguments",
    [
        ["g/t0"],
        ["g/t0", "--thumb", "sideways"],
        ["g/t0", "--score", "style"],
        ["g/t0", "--score", "style=nan"],
        ["g/t0", "--score", "thumb=1"],
        ["g/t0", "--tie"],
        ["g/t0", "--prefer", "t1", "--tie", "--both-bad"],
        ["g/t0", "--prefer", "t0"],
        ["g/t0", "--prefer", "g/t1/c0"],
        ["g/t0", "--edit", "/nowhere"],
        ["g/t0", "--undo", "--thumb", "up"],
        ["g/t0", "--list", "--undo"],
        ["g/t0", "--thumb", "up", "--who", "a/b"],
        ["g/nowhere", "--thumb", "up"],
        ["c0", "--thumb", "up"],
    ],
)
def test_what_cannot_be_said_is_refused_before_anything_is_published(shared: LogSettings, arguments: list[str]) -> None:
    """In one line, exit code 2."""
    before = len(list(read_topics(shared, [REWARDS])))
    label(shared, *arguments, code=2)
    assert len(list(read_topics(shared, [REWARDS]))) == before


def test_a_line_is_one_row_whatever_somebody_wrote() -> None:
    """Escape codes and line breaks of others' words, and of a scorer's reasons, stand there by their number."""
    evil = "ok\x1b[2J\nforged"
    fact = reward("g", "t", 1.0, source="human:ann", name=evil, metadata=json.dumps({"comment": evil}))
    (word,) = Feedback([fact]).history()
    trial = Trial(scorer="judge/style", subject="g/t", values=(1.0,), failed=evil, detail=evil, tokens=0)
    for line in (label_line(word), trial_line(trial)):
        assert line.isprintable()
        assert "ok<U+001B>[2J" in line
