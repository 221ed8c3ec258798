"""Acts from the dashboard: the events that `claw` writes, who may, what stands of them, and how they are taken back."""

from collections.abc import Iterator
from functools import reduce
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from claw_r1.consumers.dashboard.routes.parts import acts
from claw_r1.consumers.dashboard.routes.parts.acts import CurationBody, command
from claw_r1.consumers.pool.curation import CurationRequest, curations, resolve
from claw_r1.consumers.pool.eviction import evictions
from claw_r1.consumers.pool.filter_query import FilterQuery
from claw_r1.datapool.fold.curation import annotated
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.eventlog.records import Outgoing, readable
from claw_r1.schemas.api_keys import Role, new_key
from claw_r1.schemas.envelopes import envelope, now_us
from claw_r1.schemas.events import GroupEvicted, KeyRecorded, StepCurated
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, KEYS, REWARDS
from tests import facts
from tests.consumers.dashboard.stage import DashboardStage, Person, episode


@pytest.fixture
def stage() -> DashboardStage:
    """Two groups; the calls of one are of another channel."""
    return DashboardStage(
        episode("g", "t0", "Which animal?", "a cat", 1.0),
        episode("g", "t1", "Which animal?", "a dog", 0.0),
        episode("h", "u0", "How many spoons?", "three", 0.5, channel="val"),
    )


@pytest.fixture
def ann(stage: DashboardStage) -> Iterator[Person]:
    with stage.served() as url:
        person = Person(url)
        person.url = url
        yield person


def refusal(person: Person, path: str, **body: Any) -> tuple[int, str]:
    answer = person.http.post(path, json=body)
    return answer.status_code, answer.json()["detail"]


def bare(event: Any) -> Any:
    """Without what differs between any two acts: ids, time and through what."""
    blank = envelope("", causation_id=None)
    event = replace(event, envelope=replace(blank, event_id="", correlation_id=None, occurred_at_us=0))
    return replace(event, revision=0) if hasattr(event, "revision") else event


def test_a_curation_is_the_event_that_claw_writes(stage: DashboardStage, ann: Person) -> None:
    """By the same filter, of the same steps, in the same order; a dry run counts and writes nothing."""
    said = {"quality": 0.2, "trainable": False, "tags": ["leak"], "scores": {"entropy@1": 0.9}, "note": "copied"}
    tried = ann.post("curations", where={"group": "g"}, **said, dry_run=True)
    assert (tried["steps"], list(stage.words())) == (2, [])
    done = ann.post("curations", where={"group": "g"}, **said)
    request = CurationRequest(quality=0.2, trainable=False, tags=("leak",), scores={"entropy@1": 0.9}, note="copied")
    steps = stage.source.pool.ask(lambda rows: resolve(rows, [], PoolFilter(group="g"), stage.source.facts))
    ours = curations(steps, request, who="ann", producer="claw pool curate", act_id="a")
    assert [bare(event) for event in stage.words()] == [bare(event) for event in ours]
    assert {event.envelope.correlation_id for event in stage.words()} == {done["act_id"]}
    options = "--no-train --quality 0.2 --set-score=entropy@1=0.9 --set-tag=leak --why=copied --group=g"
    assert done["command"] == ["claw", "pool", "curate", *options.split()]


def test_an_eviction_is_the_event_that_claw_writes(stage: DashboardStage, ann: Person) -> None:
    """An unknown id beside a known one evicts nothing; the row's stub then tells of it."""
    assert ann.post("evictions", ids=["t0", "nobody"], why="asked to")["unknown"] == ["nobody"]
    tried = ann.post("evictions", ids=["g"], why="asked to", dry_run=True)
    assert (tried["groups"], tried["trajectories"]) == (1, 2)
    each = ann.post("evictions", ids=["t0", "t1"], why="asked to", dry_run=True)
    assert (each["groups"], each["trajectories"], each["digest"] == tried["digest"]) == (0, 2, False)
    assert ann.post("evictions", ids=["g"], why="asked to", expected=tried["digest"])["trajectories"] == 2
    written = [event for event in readable(stage.log.reader([CALLS]).read_to_end()) if isinstance(event, GroupEvicted)]
    rows = stage.source.pool.ask(lambda rows: {"g": [*rows.group_rows()][:1]})
    (ours,), *_ = evictions(rows, why="asked to", who="ann", producer="claw pool evict", act_id="a")
    assert [bare(event) for event in written] == [bare(ours)]
    (act,) = ann.get("acts", kind="evicted")["acts"]
    assert (act["who"], act["events"], act["may_undo"]) == ("ann", 1, False)
    assert act["subjects"] == [{"g": "g", "t": None, "c": None}]
    assert refusal(ann, "acts/undo", act_id=act["act_id"]) == (422, "an eviction cannot be undone")


def test_an_eviction_from_elsewhere_stands_in_the_history(stage: DashboardStage, ann: Person) -> None:
    """Its reason and time are the row's."""
    stage.tell(facts.evicted("h", "u0", reason="old"))
    while not (page := ann.get("acts", kind="evicted"))["acts"]:
        pass
    assert [(act["says"], act["subjects"][0]["t"]) for act in page["acts"]] == [(["evicted: old"], "u0")]
    stage.tell(facts.evicted_group("h", reason="older", envelope=facts.envelope(at_us=1)))
    while (page := ann.get("acts", kind="evicted"))["total"] != 1 or page["acts"][0]["subjects"][0]["t"]:
        pass
    assert [(act["says"], act["subjects"][0]["g"]) for act in page["acts"]] == [(["evicted: older"], "h")]


def test_undo_goes_back_act_by_act(stage: DashboardStage, ann: Person) -> None:
    """Curations, labels and preferences alike; what was taken back is not taken back again, and the history says so."""
    ann.post("curations", ids=["t0-0"], trainable=False)
    ann.post("judgements", group_id="g", trajectory_id="t0", scores={"overall": 0.75})
    ann.post("preferences", group_id="g", chosen="t0", rejected="t1")
    kinds = [ann.post("acts/undo")["undone"]["kind"] for _ in range(3)]
    assert kinds == ["preferred", "judged", "curated"]
    assert ann.post("acts/undo")["undone"] is None
    history = ann.get("acts")["acts"]
    assert [act["kind"] for act in history] == ["undone"] * 3 + ["preferred", "judged", "curated"]
    assert [act["stands"] for act in history[3:]] == [False] * 3
    (curation, undone) = [event for event in stage.words() if isinstance(event, StepCurated)]
    assert undone.undoes == (curation.envelope.event_id,)
    assert ann.get("judged", g="g", t="t0", c="t0-0")["curation"]["trainable"] is None


def test_what_was_judged_is_there_before_the_pool_has_it(stage: DashboardStage, ann: Person) -> None:
    """The stage folds no act of the page: the answer counts it nevertheless, and what differs among calls is `mixed`."""
    stage.tell(facts.call("g", "t0", "second"), facts.curated("g", "t0", "second", quality=0.5, who="scorer/x@1"))
    while ann.get("judged", g="g", t="t0")["calls"] != 2:
        pass
    ann.post("curations", ids=["second"], where={"group": "g", "trajectory": "t0"}, quality=0.9, note="better")
    judged = ann.get("judged", g="g", t="t0", c="second")
    assert (judged["curation"]["quality"], judged["curation"]["note"]) == (0.9, "better")
    assert ann.get("judged", g="g", t="t0")["mixed"] == ["quality", "note"]


def test_the_later_decision_counts_whichever_clock_was_ahead(stage: DashboardStage, ann: Person) -> None:
    """Also of what the pool has not folded yet: ann's clock was ten minutes ahead, bob decides after her, and she after him."""
    ahead_us = now_us() + 600_000_000
    early = facts.curated("g", "t0", "t0-0", trainable=False, who="ann", revision=ahead_us, envelope=envelope("test"))
    stage.tell(early)
    while ann.get("judged", g="g", t="t0", c="t0-0")["curation"]["trainable"] is not False:
        pass
    for person, trainable in ((Person(ann.url, "bob"), True), (ann, False)):
        person.post("curations", ids=["t0-0"], trainable=trainable)
        assert ann.get("judged", g="g", t="t0", c="t0-0")["curation"]["trainable"] is trainable
    spoken = [word for word in stage.words() if isinstance(word, StepCurated)]
    assert [word.revision - ahead_us for word in spoken] == [0, 1, 2]
    assert (folded := reduce(annotated, spoken, None)) is not None
    assert (folded.trainable, folded.who) == (False, "ann")


def test_words_of_a_later_version_stand_in_the_history(stage: DashboardStage, ann: Person) -> None:
    """An outcome that this version does not know is called by its name."""
    stage.log.append([Outgoing.of(REWARDS, group_key("g"), facts.preferred("g", "t0", "t1", outcome="unknown"))])
    while not (page := ann.get("acts"))["acts"]:
        pass
    assert page["acts"][0]["says"] == ["unknown"]


def test_only_who_spoke_takes_words_back(ann: Person) -> None:
    """A curation is everybody's to undo, as with `claw pool curate --undo`."""
    ann.post("judgements", group_id="g", trajectory_id="t0", scores={"overall": 0.0})
    curated = ann.post("curations", ids=["t0-0"], quality=0.1)
    words = ann.get("acts")["acts"][1]
    bob = Person(ann.url, "bob")
    assert refusal(bob, "acts/undo", act_id=words["act_id"])[0] == 403
    assert bob.post("acts/undo", act_id=curated["act_id"])["undone"]["stands"] is False
    assert bob.post("acts/undo")["undone"] is None, "an undo is no act that `u` takes back"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"ids": ["t0"]}, "nothing is judged"),
        ({"trainable": False}, "which steps"),
        ({"trainable": False, "where": {"chanel": "val"}}, "Extra inputs"),
        ({"trainable": False, "where": {"score": ["entropy"]}}, "score takes"),
    ],
)
def test_what_is_not_clear_is_refused_with_a_sentence(
    stage: DashboardStage, ann: Person, body: dict[str, Any], reason: str
) -> None:
    status, detail = refusal(ann, "curations", **body)
    assert status == 422
    assert reason in detail
    assert list(stage.words()) == []


def test_a_filter_of_trajectories_means_all_their_steps(ann: Person) -> None:
    """Also by what only they have; a text is sought where the list that led here seeks it: not in conversations."""
    assert ann.post("curations", kind="trajectories", where={"reward_min": 0.5}, quality=1, dry_run=True)["steps"] == 2
    assert ann.post("curations", kind="groups", where={"group": "g"}, quality=1, dry_run=True)["steps"] == 2
    assert ann.post("curations", where={"text": "SPOONS"}, quality=1, dry_run=True)["steps"] == 0
    for kind in ("steps", "trajectories"):
        tried = ann.post("curations", kind=kind, where={"text": "U0"}, quality=1, dry_run=True)
        assert tried["subjects"] == [{"g": "h", "t": "u0", "c": "u0-0"}]


def test_an_act_is_of_the_places_that_were_marked(stage: DashboardStage, ann: Person) -> None:
    """A trajectory and a call of the same ids in another group are left alone; ids that several groups have are refused."""
    stage.tell(*episode("h", "t0", "How many spoons?", "four", 0.5))
    while ann.post("curations", kind="groups", places=[["h"]], quality=1, dry_run=True)["steps"] != 2:
        pass
    for place, steps in ((["h", "t0"], 1), (["h", "t0", "t0-0"], 1), (["h"], 2), (["h", "nobody"], 0), (["t0"], 0)):
        tried = ann.post("curations", places=[place], quality=1, dry_run=True)
        assert (tried["steps"], {each["g"] for each in tried["subjects"]}) == (steps, {"h"} if steps else set())
    status, detail = refusal(ann, "curations", ids=["t0"], quality=1)
    assert (status, "say which" in detail) == (422, True), detail
    assert ann.post("curations", ids=["t0"], where={"group": "h"}, quality=1, dry_run=True)["steps"] == 1
    assert "say which" in refusal(ann, "evictions", ids=["t0"], why="x")[1]
    gone = ann.post("evictions", places=[["h", "t0"]], why="x", dry_run=True)
    assert gone["subjects"] == [{"g": "h", "t": "t0", "c": None}]
    assert ann.post("evictions", places=[["h", "x"]], why="x", dry_run=True)["unknown"] == ["h/x"]
    assert list(stage.words()) == []


def test_what_changed_since_it_was_counted_is_refused(stage: DashboardStage, ann: Person) -> None:
    """One more call has come; of what is counted again the act is done."""
    said = {"where": {"group": "g"}, "quality": 0.5}
    counted = ann.post("curations", **said, dry_run=True)
    stage.tell(facts.call("g", "t0", "second"))
    while (again := ann.post("curations", **said, dry_run=True))["steps"] != 3:
        pass
    assert refusal(ann, "curations", **said, expected=counted["digest"])[0] == 409
    assert list(stage.words()) == []
    assert ann.post("curations", **said, expected=again["digest"])["steps"] == 3


def test_more_than_an_act_takes_is_refused_unread(
    stage: DashboardStage, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acts, "EVENTS_MAX", 1)
    assert "2 steps are more than 1" in refusal(ann, "curations", where={"group": "g"}, quality=1)[1]


def test_an_act_stands_by_what_counts(stage: DashboardStage, ann: Person) -> None:
    """An undo that is itself taken back takes nothing back; as the fold counts."""
    done = ann.post("curations", places=[["g"]], quality=0.5)
    undone = ann.post("acts/undo", act_id=done["act_id"])["undone"]
    assert (undone["kind"], undone["stands"]) == ("curated", False)
    back = ann.get("acts")["acts"][0]
    assert ann.post("acts/undo", act_id=back["act_id"])["undone"]["stands"] is False
    assert [act["stands"] for act in ann.get("acts")["acts"]] == [True, False, True]
    assert ann.get("judged", g="g", t="t0")["curation"]["quality"] == 0.5


def test_a_command_says_the_same_or_is_not_there() -> None:
    """Quality unrounded; nothing for what no command can say, or says of other steps."""
    assert command(CurationBody(ids=["c"], quality=0.12345678)) == [
        "claw",
        "pool",
        "curate",
        "c",
        "--quality",
        "0.12345678",
    ]
    for body in (
        CurationBody(ids=["c"], tags=[]),
        CurationBody(ids=["c"], scores={"x@1": None}),
        CurationBody(ids=["-c"], quality=1),
        CurationBody(places=[["g", "t"]], quality=1),
        CurationBody(where=FilterQuery(text="spoons"), quality=1),
    ):
        assert command(body) is None


ROLES: tuple[Role, ...] = ("annotator", "reader", "operator")
MAY: dict[str, tuple[Role, ...]] = {
    "acts": ROLES,
    "curations": ("annotator", "operator"),
    "acts/undo": ("annotator", "operator"),
    "evictions": ("operator",),
}


def test_who_may_do_what(stage: DashboardStage) -> None:
    """A table of role and route: a reader writes nothing, only an operator evicts."""
    bodies = {
        "curations": {"ids": ["t0"], "quality": 0.5},
        "acts/undo": {},
        "evictions": {"ids": ["t0"], "why": "x", "dry_run": True},
    }
    secrets = {}
    for role in ROLES:
        secrets[role], entry = new_key(role)
        record = KeyRecorded(envelope=envelope("test"), digest=entry.partition(":")[2], name=f"the {role}", role=role)
        stage.log.producer().publish_now(KEYS, record.digest.encode(), record)
    with stage.served(keys=True) as url:
        for role, secret in secrets.items():
            http = httpx.Client(base_url=f"{url}/api/v1/", timeout=20)
            token = http.post("session", json={"key": secret}).json()["token"]
            for path, roles in MAY.items():
                answer = (
                    http.get(path)
                    if path == "acts"
                    else http.post(path, json=bodies[path], headers={"x-page-token": token})
                )
                assert (answer.status_code == 200) == (role in roles), (role, path, answer.text)
                assert answer.status_code in (200, 403)
