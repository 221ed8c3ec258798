"""Quality scorers and their events, on a memory log."""

import json
import threading

import pytest

from consumers.quality.errors import ScorerUnknown
from consumers.quality.panel import judged, who
from consumers.quality.sample import Sample
from consumers.quality.scorers import SCORERS, named
from consumers.quality.scoring import Scoring
from consumers.quality.settings import QualitySettings
from eventlog.memory import MemoryLog
from eventlog.settings import LogSettings
from schemas.arrays import pack_floats
from schemas.codec import encode
from schemas.events import Edge, Sampling, StepCurated
from schemas.keys import group_key
from schemas.topics import CALLS, REWARDS
from tests import facts
from tests.consumers.quality.own_scorer import MINE

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"required": ["query"]}}}]


def reply(content=None, calls=()):
    tool_calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    return json.dumps({"choices": [{"message": {"content": content, "tool_calls": tool_calls}}]}).encode()


def call(group="g", **changes):
    body = json.dumps({"tools": TOOLS}).encode()
    return facts.call(group, **{"request": Edge(suffix=body, full_length=len(body), full_digest=""), **changes})


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
    assert SCORERS[name].score(Sample(call(**changes))) == expected


def test_a_scorer_of_ones_own_is_named_by_module():
    """Pluggable: a table entry or `module:name`; anything else is told."""
    assert named("length").label == "length@1"
    assert named("tests.consumers.quality.own_scorer:MINE").label == "mine@3"
    with pytest.raises(ScorerUnknown, match="there are: length"):
        named("nonsense")
    with pytest.raises(ScorerUnknown):
        named("no.such.module:thing")


def test_a_call_is_as_good_as_its_worst_property():
    """The lowest score is the quality, all stand in the note, the panel signs with names and versions."""
    event = judged([SCORERS["length"], MINE], call(), generation=0)
    assert (event.quality, event.note, event.who) == (0.25, "length@1=1 mine@3=0.25", "scorer/length@1+mine@3")
    assert judged([SCORERS["tool_calls"]], call(), generation=0) is None


def test_made_again_it_is_the_same_event_to_the_byte():
    """Id, time and bytes are functions of the call, the panel and the generation."""
    one = call()
    assert encode(judged([MINE], one, 0)) == encode(judged([MINE], one, 0))
    ids = {judged(panel, one, g).envelope.event_id for panel in ([MINE], [SCORERS["length"]]) for g in (0, 1)}
    assert len(ids) == 4


def test_the_attempt_that_counts_has_the_score_that_counts():
    """The pool keeps the highest attempt, and a higher generation outranks every attempt of a lower one."""
    revisions = [judged([MINE], call(attempt=n), g).revision for g, n in ((0, 0), (0, 1), (0, 5000), (1, 0))]
    assert revisions == sorted(set(revisions))


def scoring(log, committed, **settings):
    start = {place: offset for place, offset in committed.items() if offset is not None}
    return Scoring(
        QualitySettings(**settings),
        [MINE],
        reader=log.reader([CALLS], start=start or "beginning"),
        producer=log.producer(),
        commit=committed.update,
    )


def scores(log):
    events = [record.event() for record in log.reader([REWARDS]).read_to_end()]
    return [event for event in events if isinstance(event, StepCurated)]


def test_a_replay_writes_the_same_scores():
    """Stopped between acknowledgement and commit, the consumer repeats itself to the byte; afterwards it goes on."""
    log, committed = MemoryLog(LogSettings(partitions=2)), {}
    producer = log.producer()
    for number in range(6):
        producer.publish_now(CALLS, group_key(f"g{number}"), call(f"g{number}"))
    producer.publish_now(CALLS, group_key("g0"), facts.completed("g0"))
    first = scoring(log, committed)
    while first.step():
        pass
    before = scores(log)
    assert len(before) == 6
    again = scoring(log, committed)  # nothing was committed
    while again.step():
        pass
    again.commit()
    assert sorted(encode(e) for e in scores(log)) == sorted(encode(e) for e in before * 2)
    assert scoring(log, committed).step() == 0
    stopped = threading.Event()
    stopped.set()
    scoring(log, committed).run(stopped)
    assert who([MINE]) == before[0].who
