"""A rule is a function that somebody wrote: whatever it does costs its own subject and nobody else."""

import os
import uuid
from concurrent.futures import CancelledError
from pathlib import Path

import psutil
import pytest

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.judged import Judged, JudgedCall
from claw_r1.consumers.rewards.kinds import kind_of
from claw_r1.consumers.rewards.kinds.function import FunctionSettings, bytes_of
from claw_r1.consumers.rewards.scorer import GaveUp, Opinion
from tests.children import is_gone
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.process
HERE = Path(__file__).parent


@pytest.fixture
def rules(monkeypatch):
    """Opens rules in this folder; all are closed, and none leaves a process."""
    monkeypatch.chdir(HERE)
    opened = []
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    def opening(use, scope="trajectory", **fields):
        settings = {"source": "rule", "name": "it", "version": 1, "timeout_s": 2.0, "memory": "128M", **fields}
        kind = kind_of(use)
        opened.append(kind.open(kind.settings(use=use, scope=scope, **settings)))
        return opened[-1]

    yield opening
    for scorer in opened:
        scorer.close()
        scorer.close()
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


@pytest.fixture
def mark(monkeypatch):
    """Stands in the command line of whatever this test's rules leave behind: others run at the same time."""
    monkeypatch.setenv("RULE_MARK", mark := uuid.uuid4().hex)
    return mark


def marked(mark):
    """The processes of this machine that have it."""
    return [one for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or ())]


def subject(word, **fields):
    """A trajectory whose tag says what the rule shall do."""
    return Judged(scope="trajectory", group_id="g", trajectory_id="t", tags=(str(word),), **fields)


def ends(futures):
    """Values, or the reason."""
    return [(future.exception(120) or future.result()) for future in futures]


def outcome(end):
    return end.values[0] if isinstance(end, Opinion) else end.reason


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("hang", "deadline"),
        ("busy", "deadline"),
        ("leave", "crashed"),
        ("segfault", "crashed"),
        ("close", "crashed"),
        ("eat", "memory"),
        ("exit", "raised"),
        ("interrupt", "raised"),
        ("boom", "raised"),
        ("unspeakable", "raised"),
        ("nan", "not_a_number"),
        ("inf", "not_a_number"),
        ("string", "not_a_number"),
        ("object", "not_a_number"),
        ("huge", "not_a_number"),
        ("long", "wrong_length"),
    ],
)
def test_a_bad_subject_costs_itself_alone(rules, word, reason) -> None:
    """The others of its batch get their values, before it and behind it."""
    scorer = rules("bad_rules:of_tag", timeout_s=60.0 if word == "eat" else 2.0)
    answers = ends(scorer.judge([subject(0.1), subject(0.2), subject(word), subject(0.3), subject(word), subject(0.4)]))
    assert [outcome(end) for end in answers] == [0.1, 0.2, reason, 0.3, reason, 0.4]
    for end in answers:
        if isinstance(end, GaveUp):
            assert end.detail
            assert "\n" not in end.detail
            assert len(end.detail) < 2100


@pytest.mark.parametrize("word", ["scribble", "frame", "shut", "lie", "boast"])
def test_a_rule_that_breaks_its_way_home_costs_no_neighbour(rules, word) -> None:
    """Whoever is in work when that is noticed is not to blame, before it or behind it."""
    answers = ends(rules("bad_rules:of_tag").judge([subject(each) for each in (0.1, word, "slow", 0.3, word, 0.4)]))
    assert [outcome(end) for end in answers] == [0.1, "crashed", 0.7, 0.3, "crashed", 0.4]


def test_what_is_odd_and_right_is_taken(rules) -> None:
    """None, a bool, words; what it printed, and the fork that came back into our loop, disturb nobody."""
    words = ["nothing", "true", "words", "shout", "fork", "1"]
    ended = ends(rules("bad_rules:of_tag", timeout_s=10.0).judge([subject(word) for word in words]))
    assert [outcome(end) for end in ended] == [None, 1.0, 0.25, 0.5, 0.5, 1.0]
    assert (ended[2].detail, ended[2].spread) == ("because of this", 0.1)


def test_what_outlives_a_process_that_ended_by_itself_is_ended(rules, mark) -> None:
    """Also what left its group, its session and its parent."""
    scorer = rules("bad_rules:of_tag", environment=("RULE_MARK",))
    assert [outcome(end) for end in ends(scorer.judge([subject("orphan"), subject(1)]))] == ["crashed", 1.0]
    orphans = marked(mark)
    psutil.wait_procs(orphans, timeout=PATIENCE_S)
    alive = [one for one in orphans if not is_gone(one)]
    for one in alive:
        one.kill()
    assert not alive


@pytest.mark.parametrize("then", [[], ["hang"]], ids=["closed", "killed"])
def test_what_a_rule_leaves_behind_ends_with_its_process(rules, mark, then) -> None:
    """Also what left its group, its session and its parent."""
    scorer = rules("bad_rules:of_tag", environment=("RULE_MARK",))
    assert outcome(ends(scorer.judge([subject("daemon")]))[0]) == 0.5
    daemons = until(lambda: marked(mark), "a daemon")
    if then:
        ends(scorer.judge([subject(word) for word in then]))
    else:
        scorer.close()
    psutil.wait_procs(daemons, timeout=PATIENCE_S)
    assert all(map(is_gone, daemons))


def test_an_error_says_what_and_where(rules) -> None:
    """Type, message and line of the rule's file."""
    (end,) = ends(rules("bad_rules:of_tag").judge([subject("boom")]))
    assert end.detail.startswith("LookupError: two lines xxx")
    assert "(bad_rules.py:" in end.detail


def test_coroutines_lists_and_groups(rules) -> None:
    """A rule may be async, and answers each call or member."""
    assert [outcome(e) for e in ends(rules("bad_rules:slowly").judge([subject(0.5), subject(2)]))] == [0.5, 2.0]
    calls = tuple(JudgedCall(call_id=str(n)) for n in range(3))
    steps = Judged(scope="steps", group_id="g", trajectory_id="t", calls=calls)
    (end,) = ends(rules("bad_rules:per_call", "steps").judge([steps]))
    assert end.values == (None, 1.0, 2.0)
    group = Judged(scope="group", group_id="g", members=(subject(1), subject(2)))
    (end,) = ends(rules("bad_rules:per_call", "group").judge([group]))
    assert end.values == (None, 1.0)


def test_several_processes_work_side_by_side(rules) -> None:
    """One that hangs in one process holds up nothing in the others."""
    scorer = rules("bad_rules:of_tag", processes=3, timeout_s=2 * PATIENCE_S)
    futures = scorer.judge([subject("hang"), subject(1), subject(2)])
    assert [future.result(PATIENCE_S).values for future in futures[1:]] == [(1.0,), (2.0,)]
    scorer.close()
    with pytest.raises(CancelledError):  # and not GaveUp: nobody judged it, and its deadline was not waited for
        futures[0].result(0)


def test_many_subjects_go_in_batches(rules) -> None:
    """More than a batch holds, each with its own value; a large one too."""
    subjects = [subject(n, metadata={"text": "x" * (3 << 20 if n % 100 == 0 else 10)}) for n in range(300)]
    assert [outcome(end) for end in ends(rules("bad_rules:of_tag").judge(subjects))] == [float(n) for n in range(300)]


def test_what_cannot_be_written_down_costs_itself_alone(rules) -> None:
    """Lone surrogates, and nesting without end."""
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    subjects = [subject(1), subject(1, task=deep), subject(1, task="\ud800"), subject(2)]
    ended = ends(rules("bad_rules:of_tag").judge(subjects))
    assert [outcome(end) for end in ended] == [1.0, "unreadable", "unreadable", 2.0]


def test_a_rule_sees_no_keys(rules, monkeypatch) -> None:
    """Variables are those of a list, and those that its settings name."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("MY_DATA", "there")
    (end,) = ends(rules("bad_rules:variables", environment=("MY_DATA",)).judge([subject(1)]))
    assert "MY_DATA" in end.detail
    assert "OPENAI_API_KEY" not in end.detail
    assert "CLAW" not in end.detail


def test_functions_written_for_trl_and_verl(rules) -> None:
    """With the columns of task and metadata."""
    talk = ({"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"})
    call = JudgedCall(call_id="c", messages=talk[:1], reply=talk[1])
    one = subject("x", calls=(call,), conversation=talk, task={"answer": 10}, metadata={"answer": 3})
    assert outcome(ends(rules("trl:bad_rules:trl_length").judge([one]))[0]) == 11.0
    text = subject("x", calls=(call,), conversation=talk, task={"answer": "4"})
    assert outcome(ends(rules("trl:bad_rules:trl_text", text=True).judge([text]))[0]) == 1.0
    assert outcome(ends(rules("trl:bad_rules:trl_may").judge([one]))[0]) == 1.0
    group = Judged(scope="group", group_id="g", members=(one, subject("x", calls=(call,), conversation=talk)))
    assert ends(rules("trl:bad_rules:trl_length", "group").judge([group]))[0].values == (11.0, 1.0)
    task = {"data_source": "gsm", "reward_model": {"ground_truth": "4"}, "extra_info": {"index": 7}}
    (end,) = ends(rules("verl:bad_rules:verl_score").judge([subject("x", calls=(call,), conversation=talk, task=task)]))
    assert (end.values, end.detail) == ((1.0,), "acc: gsm, index: 7")


@pytest.mark.parametrize(
    ("use", "scope", "words"),
    [
        ("no_such_module:f", "call", "No module named 'no_such_module'"),
        ("bad_rules:nowhere", "call", "bad_rules has no nowhere"),
        ("bad_rules:no_function", "call", "is no function but int"),
        ("bad_rules:two_arguments", "call", "does not take one subject"),
        ("trl:bad_rules:of_tag", "call", "does not take prompts, completions by name"),
        ("trl:bad_rules:trl_ids", "call", "trl: it needs completion_ids, which only a trainer has: give it a default"),
        ("trl:bad_rules:trl_length", "steps", "judge call, next, trajectory, group, not steps"),
        ("nobody", "call", "no entry point of claw.rewards"),
        ("broken_rule:f", "call", "SyntaxError"),
        ("exiting_rule:f", "call", "exit code 7"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_line(rules, tmp_path, monkeypatch, use, scope, words) -> None:
    """At opening, by name."""
    (tmp_path / "broken_rule.py").write_text("def (:")
    (tmp_path / "exiting_rule.py").write_text("import os; os._exit(7)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ConsumerError, match=words) as refusal:
        rules(use, scope)
    assert "\n" not in str(refusal.value)
    assert use in str(refusal.value)


def test_sizes_are_read_as_people_write_them() -> None:
    """Bytes, or with a suffix."""
    assert [bytes_of(size) for size in ("512M", "2g", "64KiB", "7", 9)] == [512 << 20, 2 << 30, 64 << 10, 7, 9]
    fields = {"source": "a", "name": "b", "use": "c:d", "version": 1, "scope": "call"}
    assert FunctionSettings(**fields, memory="1G").memory == 1 << 30
    with pytest.raises(ValueError, match="memory"):
        FunctionSettings(**fields, memory="much")


def test_a_worker_loads_nothing_heavy() -> None:
    """A process per rule has to be cheap: no pydantic, no Kafka, no structlog."""
    import subprocess
    import sys

    code = "import sys, claw_r1.consumers.rewards.functions.worker as w; print([m for m in ('pydantic','confluent_kafka','structlog','psutil') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"
