"""Quality scorers and their events, on a memory log; the process on a real one."""

import hashlib
import itertools
import json
import math
import os
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from claw_r1.consumers.quality.sample import Sample
from claw_r1.consumers.quality.scorers import SCORERS, Scorer, ScorerUnknown, named
from claw_r1.consumers.quality.scoring import Scoring, annotation, signature
from claw_r1.consumers.quality.settings import QualitySettings
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.datapool.fold.validation import usable
from claw_r1.datapool.view.request_bodies import backwards
from claw_r1.eventlog.consume import ConsumeLimits, ConsumerLoop
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.arrays import pack_floats
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.events import Edge, Sampling, StepCurated, StepRecord, Usage
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, DEAD_LETTERS, REWARDS
from tests import facts
from tests.consumers import published
from tests.consumers.quality.own_scorer import MINE

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"required": ["query"]}}}]


def reply(content=None, calls=()):
    tool_calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    return json.dumps({"choices": [{"message": {"content": content, "tool_calls": tool_calls}}]}).encode()


TEXT = {"ids": (), "response_body": reply("A good answer."), "usage": Usage(prompt_tokens=3, completion_tokens=9)}
"""What a provider's call has: no token ids."""


def request_body(messages=()):
    return json.dumps({"tools": TOOLS, "messages": list(messages)}).encode()


def edge(body, base_call_id=None, keep=0):
    """A request body as an edge, in full or against another call's."""
    digest = hashlib.sha256(body).hexdigest()
    return Edge(base_call_id=base_call_id, keep=keep, suffix=body[keep:], full_length=len(body), full_digest=digest)


def call(group="g", trajectory="t", call_id="c", **changes):
    return facts.call(group, trajectory, call_id, **{"request": edge(request_body()), **changes})


def sample(one, body=request_body):
    return Sample(one, body)


def limited(limit):
    return Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=limit)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("length", {"ids": range(8), "sampling": limited(10)}, 1.0),
        ("length", {"ids": range(9), "sampling": limited(10)}, pytest.approx(0.5)),
        ("length", {"ids": range(3), "finish_reason": "length"}, 0.0),
        ("length", {"ids": ()}, 0.0),
        ("length", {"ids": range(999)}, 1.0),
        ("length", {"ids": range(9), "response_body": reply(""), "sampling": limited(10)}, pytest.approx(0.5)),
        ("length", TEXT, 1.0),
        ("length", TEXT | {"usage": None}, 1.0),
        ("length", TEXT | {"sampling": limited(10)}, pytest.approx(0.5)),
        ("length", TEXT | {"sampling": limited(10), "usage": None}, None),
        ("length", TEXT | {"sampling": limited(10), "response_body": b"data: {}"}, pytest.approx(0.5)),
        ("length", TEXT | {"response_body": reply(calls=[("search", "{}")])}, 1.0),
        ("length", TEXT | {"response_body": reply(" ")}, 0.0),
        ("length", TEXT | {"response_body": b"data: {}", "usage": None}, 0.0),
        ("length", TEXT | {"finish_reason": "length"}, 0.0),
        ("repetition", {"ids": range(10)}, 1.0),
        ("repetition", {"ids": [7] * 13}, 0.1),
        ("repetition", {"ids": range(3)}, None),
        ("entropy", {"response_logprobs": pack_floats([0.0, 0.0, 0.0])}, 1.0),
        ("entropy", {"response_logprobs": pack_floats([-1.0, -2.0, -3.0])}, pytest.approx(0.135335, abs=1e-6)),
        ("entropy", {"response_logprobs": b""}, None),
        ("format", {"response_body": reply("fine")}, 1.0),
        ("format", {"response_body": reply("```py")}, 0.75),
        ("format", {"response_body": reply("<think>\ufffd")}, 0.5),
        ("format", {"response_body": reply("")}, 0.75),
        ("format", {"response_body": b"data: {}"}, None),
        ("tool_calls", {"response_body": reply("no call")}, None),
        ("tool_calls", {"response_body": reply(calls=[("search", '{"query": "x"}')])}, 1.0),
        ("tool_calls", {"response_body": reply(calls=[("search", "{}"), ("search", '{"query": 1}')])}, 0.5),
        ("tool_calls", {"response_body": reply(calls=[("invent", "{}")])}, 0.0),
        ("tool_calls", {"response_body": reply(calls=[("search", "{broken")])}, 0.0),
    ],
)
def test_scores(name, changes, expected):
    """Reference values of every scorer; None where it has nothing to say."""
    assert SCORERS[name].score(sample(call(**changes))) == expected


def test_a_scorer_of_ones_own_is_named_by_module():
    """Pluggable: a table entry or `module:name`; anything else is told."""
    assert named("length").label == "length@2"
    assert named("tests.consumers.quality.own_scorer:MINE").label == "mine@3"
    with pytest.raises(ScorerUnknown, match="there are: length"):
        named("nonsense")
    with pytest.raises(ScorerUnknown):
        named("no.such.module:thing")


def test_a_call_is_as_good_as_its_worst_property():
    """The lowest score is the quality, each stands by its name, the panel signs with names and versions."""
    event = annotation([MINE, SCORERS["length"]], sample(call()), generation=0)
    assert (event.quality, event.scores) == (0.25, {"length@2": 1.0, "mine@3": 0.25})
    assert event.who == "scorer/length@2+mine@3"


def test_a_scorer_with_nothing_to_say_says_so():
    """A null: who waits for its word need not wait, and nothing is worse for it."""
    silent = annotation([SCORERS["tool_calls"]], sample(call()), generation=0)
    assert (silent.quality, silent.scores) == (None, {"tool_calls@2": None})
    assert annotation([MINE, SCORERS["tool_calls"]], sample(call()), generation=0).quality == 0.25


class SeveralNumbers:
    """As torch's tensors are."""

    def __float__(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


@pytest.mark.parametrize(
    ("returned", "score"),
    [
        (math.nan, None),
        (math.inf, None),
        ("0.5", None),
        (np.array([0.5, 0.5]), None),
        (SeveralNumbers(), None),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (True, 1.0),
        (1, 1.0),
    ],
)
def test_a_score_is_a_finite_number_whatever_a_scorer_returns(returned, score):
    """Of numpy's it is a plain one; what is none takes nobody else's word away, and the log of the process names its scorer."""
    with capture_logs() as lines:
        event = annotation([Scorer("own", 1, lambda _: returned), SCORERS["length"]], sample(call()), 0)
    curated = decode(encode(event))
    usable(curated)
    assert curated.scores == {"length@2": 1.0, "own@1": score}
    assert curated.quality == (1.0 if score is None else score)
    assert [line["scorer"] for line in lines] == ["own@1"] * (score is None)


def test_made_again_it_is_the_same_event_to_the_byte():
    """Id, time and bytes are functions of the call, the panel and the generation."""
    one = sample(call())
    assert encode(annotation([MINE], one, 0)) == encode(annotation([MINE], one, 0))
    ids = {annotation(panel, one, g).envelope.event_id for panel in ([MINE], [SCORERS["length"]]) for g in (0, 1)}
    assert len(ids) == 4


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_capture_that_counts_has_the_score_that_counts(order):
    """Of a call that was captured several times, and a higher generation outranks every score of a lower one."""
    captures = [
        call(attempt=1, received_us=1, ids=(1,)),
        call(attempt=0, received_us=2, ids=(1, 2)),
        call(attempt=2, received_us=3, ids=(1, 2, 3), status="aborted"),
    ]
    scorer = Scorer("tokens", 1, lambda one: len(one.call.response_ids) / 100)
    made = [annotation([scorer], sample(one), 0) for one in captures]
    events = [event for n in order for event in (captures[n], made[n])]
    state = None
    for event, position in facts.placed(events):
        state = fold(state, event, position)
    (step,) = [one for one in project(state).values() if isinstance(one, StepRecord)]
    assert (step.attempt, step.response_length, step.curation.quality) == (0, 2, 0.08)
    assert annotation([scorer], sample(call(status="aborted")), 1).revision > made[1].revision


GROUP = "quality"


def committed(log):
    return sum(offset or 0 for offset in log.committed_offsets(GROUP, [CALLS], range(log.settings.partitions)).values())


def score_all(log, panel=(MINE,), records_max=500, **settings):
    """What is in the log and not scored yet is scored, by a process that starts and ends for it."""
    earlier = partial(backwards, partial(log.read_range, CALLS), 0)
    scoring = Scoring(QualitySettings(**settings), panel, earlier=earlier)
    limits = ConsumeLimits(records_max=records_max)
    loop = ConsumerLoop(log, [CALLS], GROUP, scoring.work, on_revoked=scoring.forget, limits=limits)
    with closing(loop):
        while loop.step(threading.Event()):
            pass


def scores(log):
    events = [record.event() for record in log.reader([REWARDS]).read_to_end()]
    return [event for event in events if isinstance(event, StepCurated)]


def test_a_replay_writes_the_same_scores():
    """A group that begins again repeats the scores to the byte; one that goes on writes none."""
    log = MemoryLog(LogSettings(partitions=2))
    publish(log, *(call(f"g{number}") for number in range(6)), facts.completed("g0"))
    score_all(log)
    before = scores(log)
    assert len(before) == 6
    score_all(log)
    assert scores(log) == before
    log.commit_offsets(GROUP, dict.fromkeys(log.end_offsets([CALLS]), 0))
    score_all(log)
    assert sorted(encode(e) for e in scores(log)) == sorted(encode(e) for e in before * 2)
    assert signature([MINE]) == before[0].who


def test_a_record_that_is_no_event_is_passed_over():
    """The streams report it, once; here there is nothing to score, and the calls after it are scored."""
    log = MemoryLog(LogSettings(partitions=1))
    log.producer().produce(Outgoing(topic=CALLS, key=b"g", value=b"garbage")).result()
    publish(log, call())
    score_all(log)
    assert len(scores(log)) == 1
    assert committed(log) == 2
    assert log.end_offsets([DEAD_LETTERS]) == {(f"{log.settings.prefix}.dead-letters", 0): 0}


INVENTED = reply(calls=[("invent", "{}")])
OFFERED = reply(calls=[("search", '{"query": "x"}')])


def conversation(replies, trajectory="t"):
    """Calls whose requests go on from the one before, as the gateway writes them: the tools stand in the first alone."""
    messages, before, calls = [], None, []
    for number, response in enumerate(replies):
        messages.append({"role": "user", "content": f"turn {number}"})
        body, keep = request_body(messages), 0
        if before is not None:
            keep = next(at for at, (a, b) in enumerate(zip(before, body, strict=False)) if a != b)
        request = edge(body, f"{trajectory}{number - 1}" if number else None, keep)
        calls.append(call("g", trajectory, f"{trajectory}{number}", request=request, response_body=response))
        before = body
    assert all(b"search" not in one.request.suffix for one in calls[1:])
    return calls


def publish(log, *calls):
    producer = log.producer()
    for fact in calls:
        producer.publish_now(CALLS, group_key(fact.group_id), fact)


def tool_scores(log, **settings):
    """Quality by call id of what is in the log and not scored yet."""
    before = len(scores(log))
    score_all(log, [SCORERS["tool_calls"]], **settings)
    return {event.call_id: event.quality for event in scores(log)[before:]}


def test_an_invented_tool_is_seen_in_a_later_turn():
    """A request that is written against the turn before offers what the whole of it offers."""
    log = MemoryLog(LogSettings(partitions=2))
    publish(log, *conversation([OFFERED, OFFERED, INVENTED]))
    assert tool_scores(log) == {"t0": 1.0, "t1": 1.0, "t2": 0.0}


@pytest.mark.parametrize("bytes_max", [0, 1 << 20])
def test_what_was_said_before_this_start_is_read_from_the_log(bytes_max):
    """Started again in the middle of a conversation, or short of memory, it scores as if it had heard all of it."""
    log = MemoryLog(LogSettings(partitions=1))
    turns = conversation([OFFERED, OFFERED, INVENTED, INVENTED])
    again = call("g", "t", "t1", attempt=1, request=turns[1].request, response_body=OFFERED)
    publish(log, *turns[:2], again, *conversation([OFFERED], "u"), facts.completed("g", "u"))
    tool_scores(log, requests_bytes_max=bytes_max)
    publish(log, turns[2], *conversation([OFFERED, INVENTED], "v"), turns[3])
    second = tool_scores(log, requests_bytes_max=bytes_max)
    assert second == {"t2": 0.0, "v0": 1.0, "v1": 0.0, "t3": 0.0}


def test_without_its_base_a_call_has_no_word_on_tools():
    """What was offered is not known: no score, rather than a guess; the same when the bodies did not fit an event."""
    log = MemoryLog(LogSettings(partitions=1))
    orphans = conversation([OFFERED, INVENTED, INVENTED])[1:]
    bare = call(call_id="bare", request=replace(edge(request_body()), suffix=b""), response_body=INVENTED)
    publish(log, *orphans, bare)
    assert tool_scores(log) == {"t1": None, "t2": None, "bare": None}


def test_calls_that_another_process_scored_in_between_are_not_missed():
    """Partitions go to another process and come back: the bodies of calls that this one did not see are read from the log."""
    log = MemoryLog(LogSettings(partitions=1))
    turns = conversation([OFFERED, OFFERED, INVENTED])
    orphan = call("g", "t", "x", request=edge(request_body(), "never came", 3), response_body=INVENTED)
    earlier = partial(backwards, partial(log.read_range, CALLS), 0)
    panel = [SCORERS["tool_calls"]]
    first = Scoring(QualitySettings(), panel, earlier=earlier)
    stop = threading.Event()
    with closing(ConsumerLoop(log, [CALLS], GROUP, first.work, on_revoked=first.forget)) as loop:
        publish(log, turns[0], orphan)
        loop.step(stop)
    publish(log, turns[1])
    score_all(log, panel)
    with closing(ConsumerLoop(log, [CALLS], GROUP, first.work, on_revoked=first.forget)) as loop:
        publish(log, turns[2])
        loop.step(stop)
    assert {event.call_id: event.quality for event in scores(log)} == {"t0": 1.0, "x": None, "t1": 1.0, "t2": 0.0}


def scored(settings, count):
    """Ids of the calls that have scores, in order of the log, once there are `count`."""
    deadline = time.monotonic() + 60
    with closing(LogReader(settings, [REWARDS])) as reader:
        call_ids = []
        while len(call_ids) < count:
            assert time.monotonic() < deadline, f"{len(call_ids)} of {count} scores"
            call_ids += [record.event().call_id for record in reader.poll(0.2)]
    return call_ids


@contextmanager
def running(settings, partitions):
    """`python -m claw_r1.consumers.quality` with settings that say so many partitions; ended by SIGTERM, with exit code 0."""
    servers = {"KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers, "CLAW_LOG_PARTITIONS": str(partitions)}
    command = [sys.executable, "-m", "claw_r1.consumers.quality", "--prefix", settings.prefix, "--scorer", "length"]
    process = subprocess.Popen(command, env={**os.environ, **servers})
    try:
        yield
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()


@pytest.mark.kafka
def test_the_broker_says_how_many_partitions_there_are(log_settings):
    """Settings that speak of fewer or more of them lose no call, and after a restart nothing is scored again."""
    places = published.say(log_settings, *(call(f"g{n}", call_id=f"c{n}") for n in range(12)))
    assert {at.partition for at in places} == {0, 1}
    with running(log_settings, partitions=99):
        assert len(scored(log_settings, 12)) == 12
    late = published.say(log_settings, *(call(f"g{n}", call_id=f"late{n}") for n in range(12)))
    with running(log_settings, partitions=1):
        call_ids = scored(log_settings, 24)
    assert {at.partition for at in late} == {0, 1}
    assert sorted(call_ids) == sorted([*(f"c{n}" for n in range(12)), *(f"late{n}" for n in range(12))])


def test_ones_own_scorer_lies_where_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the working folder is found by name, behind all that is installed."""
    monkeypatch.setattr("sys.path", [place for place in sys.path if place])
    monkeypatch.chdir(tmp_path)
    source = Path(__file__).with_name("own_scorer.py").read_text()
    (tmp_path / "scorer_of_this_folder.py").write_text(source)
    assert named("scorer_of_this_folder:MINE").label == "mine@3"
    assert sys.path[-1] == str(tmp_path)
