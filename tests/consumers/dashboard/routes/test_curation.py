"""`/api/v1` of the queue: what is asked next, what is told, and what a write leaves in claw.rewards."""

import threading
from collections.abc import Iterator

import httpx
import pytest

from claw_r1.consumers.dashboard.feedback.view import FeedbackView
from claw_r1.datapool.view.view import PoolView
from claw_r1.eventlog.known_keys import KnownKeys
from claw_r1.eventlog.records import Record
from claw_r1.schemas.api_keys import new_key
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import Event, KeyRecorded, OutputEdited, PreferenceGiven, RewardAssigned
from claw_r1.schemas.topics import KEYS
from tests import facts
from tests.consumers.dashboard.stage import DashboardStage, Person, episode
from tests.patience import until

ROLES = ("agent", "annotator", "reader", "operator")


def group(name: str, *replies: str) -> list[Event]:
    return [
        each for n, reply in enumerate(replies) for each in episode(name, f"{name}{n}", "what is it?", reply, float(n))
    ]


@pytest.fixture
def stage() -> DashboardStage:
    return DashboardStage(group("a", "it is a cat", "it is a dog"), group("b", "yes"))


@pytest.fixture
def url(stage: DashboardStage) -> Iterator[str]:
    with stage.served() as address:
        yield address


def test_a_judgement_is_an_event_and_leaves_the_queue(stage: DashboardStage, url: str) -> None:
    """Thumb, scores and comment are facts of the person who is signed in, and the item waits no more."""
    ann = Person(url)
    assert sorted(ann.waiting()) == ["a0", "a1", "b0"]
    ann.judge("a0", thumb=True, scores={"overall": 0.75}, comment="well said")
    thumb, overall = stage.words()
    assert isinstance(thumb, RewardAssigned)
    assert isinstance(overall, RewardAssigned)
    assert (thumb.source, thumb.name, thumb.value, thumb.metadata) == (
        "human:ann",
        "thumb",
        1.0,
        '{"comment":"well said"}',
    )
    assert (overall.name, overall.value) == ("overall", 0.75)
    assert sorted(ann.waiting()) == ["a1", "b0"]
    assert ann.get("queue")["progress"] == {"ann": 1}


def test_undo_takes_the_last_act_back_and_then_the_one_before(stage: DashboardStage, url: str) -> None:
    """Undo is an event, too; what was undone waits again."""
    ann = Person(url)
    ann.judge("a0", thumb=True)
    ann.judge("a1", thumb=False)
    assert ann.undone() == ("a1", ["thumb down"])
    assert ann.undone() == ("a0", ["thumb up"])
    assert ann.post("acts/undo")["undone"] is None
    assert sorted(ann.waiting()) == ["a0", "a1", "b0"]
    assert [event.value for event in stage.words() if isinstance(event, RewardAssigned)] == [1.0, 0.0, None, None]


def test_a_reward_of_the_highest_revision_locks_nobody_out(stage: DashboardStage, url: str) -> None:
    """Its person judges and takes back as ever."""
    stage.tell(facts.reward("a", "a0", 1.0, source="human:ann", name="thumb", revision=(1 << 63) - 1))
    ann = Person(url)
    ann.waiting()
    ann.judge("a0", thumb=False)
    assert ann.undone() == ("a0", ["thumb down"])
    ann.judge("a0", thumb=True)


def test_nobody_sees_what_others_said_before_he_has_judged(stage: DashboardStage, url: str) -> None:
    """Others' words and scorers' values come with one's own judgement, and not before."""
    stage.tell(facts.reward("a", "a0", 0.3, source="judge", name="style"))
    stage.wait_read()
    ann, bob = Person(url), Person(url, "bob")
    ann.judge("a0", thumb=True, comment="fine")
    (side,) = bob.get("subject", group_id="a", trajectory_id="a0")["sides"]
    assert (side["mine"], side["others"], side["scorers"]) == ([], None, None)
    assert "fine" not in str(bob.get("queue", overlap=2))
    bob.judge("a0", scores={"overall": 0.0})
    (side,) = bob.get("subject", group_id="a", trajectory_id="a0")["sides"]
    assert [(word["who"], word["says"], word["comment"]) for word in side["others"]] == [("ann", "thumb up", "fine")]
    assert {"slot": "judge/style", "value": 0.3, "failed": None} in side["scorers"]


def test_a_pair_is_blind_for_whoever_judged_a_member(url: str) -> None:
    """What others said of its members comes with one's own comparison."""
    ann, bob = Person(url), Person(url, "bob")
    ann.waiting()
    ann.judge("a0", thumb=True, comment="fine")
    bob.judge("a0", thumb=False)
    pair = {"group_id": "a", "trajectory_id": "a0", "other_id": "a1"}
    assert {side["others"] is None for side in bob.get("subject", **pair)["sides"]} == {True}
    bob.post("preferences", group_id="a", chosen="a0", rejected="a1")
    assert "fine" in str(bob.get("subject", **pair)["sides"])


def test_a_word_sums_up_its_own_group_alone(stage: DashboardStage) -> None:
    """What stands of the others is not read again, and an answer under way keeps the sum that it has."""
    view = FeedbackView(
        stage.log, PoolView(stage.log.settings, listed=True, open_reader=lambda: stage.log.reader([])), on_event=id
    )
    view.append([facts.reward("a", "a0", 1.0, source="human:ann"), facts.reward("b", "b0", 1.0, source="human:ann")])
    before = view.voices()
    view.append([facts.reward("b", "b0", 0.0, source="human:bob")])
    after = view.voices()
    assert after.judges["a", "a0"] is before.judges["a", "a0"]
    assert (before.judges["b", "b0"], after.judges["b", "b0"]) == ({"ann"}, {"ann", "bob"})
    assert after.spread["b", "b0"] == 1.0


def test_each_item_goes_to_as_many_people_as_asked_for(url: str) -> None:
    """Overlap 1: what one judged is nobody's any more; overlap 2: it is still the other's."""
    ann, bob = Person(url), Person(url, "bob")
    ann.judge("a0", thumb=True)
    assert "a0" not in bob.waiting(overlap=1)
    assert "a0" in bob.waiting(overlap=2)
    assert "a0" not in ann.waiting(overlap=2)


def test_a_second_server_says_the_same(stage: DashboardStage, url: str) -> None:
    """Nothing but events is kept: another process, and one that starts later, agree."""
    with stage.served() as second:
        ann, elsewhere = Person(url), Person(second)
        assert elsewhere.waiting()
        ann.judge("a0", thumb=True)
        while "a0" in elsewhere.waiting():  # it follows the log
            pass
        with stage.served() as third:
            assert "a0" not in Person(third).waiting()
            assert Person(third).undone() == ("a0", ["thumb up"])


def test_a_pair_is_preferred_and_what_differs_is_marked(stage: DashboardStage, url: str) -> None:
    """The queue of pairs names members of one group; the answer marks words; the preference is one event."""
    ann = Person(url)
    ann.waiting()
    (item,) = ann.get("queue", mode="pair")["items"]
    subject = ann.get("subject", **{name: item[name] for name in ("group_id", "trajectory_id", "other_id")})
    left, right = subject["sides"]
    assert [side["trajectory_id"] for side in subject["sides"]] == [item["trajectory_id"], item["other_id"]]
    assert left["turns"][0]["same"]
    assert right["turns"][0]["same"]
    marked = {side["trajectory_id"]: side["turns"][1]["parts"] for side in (left, right)}
    assert marked["a0"] == [["it is a ", False], ["cat", True]]
    assert marked["a1"] == [["it is a ", False], ["dog", True]]
    ann.post("preferences", group_id="a", chosen="a1", rejected="a0", strength=0.25)
    (event,) = stage.words()
    assert isinstance(event, PreferenceGiven)
    assert (event.chosen.trajectory_id, event.rejected.trajectory_id, event.strength) == ("a1", "a0", 0.25)
    assert ann.get("queue", mode="pair")["items"] == []
    (own,) = ann.get("subject", group_id="a", trajectory_id="a0", other_id="a1")["mine"]
    assert own["says"] == "preferred to a0"
    assert ann.undone() == ("a1", [own["says"]])  # in the same words
    assert len(ann.get("queue", mode="pair")["items"]) == 1


def test_a_better_reply_is_an_edit_of_the_last_call(stage: DashboardStage, url: str) -> None:
    """The subject names the call and its reply; the edit is kept as an event of that call."""
    ann = Person(url)
    ann.waiting()
    (side,) = ann.get("subject", group_id="a", trajectory_id="a0")["sides"]
    assert side["reply"] == "it is a cat"
    ann.judge("a0", call_id=side["call_id"], edit="it is a fox")
    (event,) = stage.words()
    assert isinstance(event, OutputEdited)
    assert "it is a fox" in (event.message or "")


def test_doubt_comes_first_and_a_draw_is_the_same_for_all(url: str, stage: DashboardStage) -> None:
    """What people are divided on leads; a seed gives everybody the same order, another seed another one."""
    for n in range(12):
        stage.tell(*episode("c", f"c{n:02d}", "q", "r"))
    stage.wait_read()
    ann, bob, cid = Person(url), Person(url, "bob"), Person(url, "cid")
    ann.waiting()
    ann.judge("a1", scores={"overall": 1.0})
    bob.judge("a1", scores={"overall": 0.0})
    ann.judge("b0", scores={"overall": 1.0})
    bob.judge("b0", scores={"overall": 0.75})
    assert cid.waiting(overlap=3)[:2] == ["a1", "b0"]
    draws = {seed: cid.waiting(order="draw", seed=seed, overlap=9) for seed in (1, 2)}
    assert draws[1] == Person(url, "dan").waiting(order="draw", seed=1, overlap=9) != draws[2]


def test_filters_are_those_of_the_pool_and_a_wrong_one_is_named(url: str) -> None:
    """A filter narrows the queue; a misspelt one, or a bound that is none, is a sentence."""
    ann = Person(url)
    ann.waiting()
    assert ann.waiting(group="b") == ["b0"]
    for query, word in (({"chanel": "val"}, "chanel"), ({"score": "x"}, "SCORER@VERSION")):
        refused = ann.http.get("queue", params=query)
        assert refused.status_code == 422
        assert word in refused.json()["detail"]


def test_what_is_not_there_is_a_sentence(url: str) -> None:
    """Unknown trajectories and calls, and words that say nothing, are problem details."""
    ann = Person(url)
    ann.waiting()
    cases = [
        (404, {"group_id": "a", "trajectory_id": "zz", "thumb": True}),
        (404, {"group_id": "a", "trajectory_id": "a0", "call_id": "zz", "edit": "x"}),
        (422, {"group_id": "a", "trajectory_id": "a0"}),
        (422, {"group_id": "a", "trajectory_id": "a0", "scores": {"thumb": 1}}),
    ]
    for status, body in cases:
        answer = ann.http.post("judgements", json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), body
        assert len(answer.json()["detail"]) > 10


def test_who_may_what_by_key(stage: DashboardStage) -> None:
    """With keys: no key, an agent's or a revoked one opens nothing, a reader writes nothing, an annotator and an operator judge."""
    secrets = {}
    for role in ROLES:
        secrets[role], entry = new_key(role)
        record = KeyRecorded(envelope=envelope("test"), digest=entry.partition(":")[2], name=f"the {role}", role=role)
        stage.log.producer().publish_now(KEYS, record.digest.encode(), record)
    with stage.served(keys=True) as url, httpx.Client(base_url=f"{url}/api/v1/") as stranger:
        assert stranger.get("session").status_code == stranger.get("queue").status_code == 401
        assert stranger.post("session", json={"who": "ann"}).status_code == 401
        statuses = {}
        for role, key in secrets.items():
            with httpx.Client(base_url=f"{url}/api/v1/") as http:
                entered = http.post("session", json={"key": key})
                token = entered.json().get("token", "")
                body = {"group_id": "a", "trajectory_id": "a0", "thumb": True}
                written = http.post("judgements", json=body, headers={"x-page-token": token})
                statuses[role] = (entered.status_code, http.get("queue").status_code, written.status_code)
        assert statuses == {
            "agent": (403, 401, 401),
            "annotator": (200, 200, 200),
            "reader": (200, 200, 403),
            "operator": (200, 200, 200),
        }
        assert {getattr(event, "source", "") for event in stage.words()} == {
            "human:the annotator",
            "human:the operator",
        }


def test_a_revoked_key_ends_its_session(stage: DashboardStage) -> None:
    """The next request after the revocation is refused, whatever cookie it has."""
    secret, entry = new_key("annotator")
    record = KeyRecorded(envelope=envelope("test"), digest=entry.partition(":")[2], name="ann", role="annotator")
    stage.log.producer().publish_now(KEYS, record.digest.encode(), record)
    with stage.served(keys=True) as url, httpx.Client(base_url=f"{url}/api/v1/") as http:
        assert http.post("session", json={"key": secret}).status_code == 200
        revoked = KeyRecorded(
            envelope=envelope("test"), digest=record.digest, name="ann", role="annotator", revoked=True
        )
        stage.log.producer().publish_now(KEYS, record.digest.encode(), revoked)
        until(lambda: http.get("queue").status_code != 200, "nobody is let in")
        assert http.get("queue").status_code == 401


def test_where_keys_are_read_no_more_nobody_is_let_in(stage: DashboardStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revocation would not be heard of: 503 that says so, for who is signed in and for who comes."""
    secret, entry = new_key("annotator")
    record = KeyRecorded(envelope=envelope("test"), digest=entry.partition(":")[2], name="ann", role="annotator")
    stage.log.producer().publish_now(KEYS, record.digest.encode(), record)
    apply, broken = KnownKeys.apply, threading.Event()

    def apply_until_broken(keys: KnownKeys, entry: Record) -> None:
        if broken.is_set():
            raise OSError("no more")
        apply(keys, entry)

    monkeypatch.setattr(KnownKeys, "apply", apply_until_broken)
    with stage.served(keys=True) as url, httpx.Client(base_url=f"{url}/api/v1/", timeout=20) as http:
        assert http.post("session", json={"key": secret}).status_code == 200
        broken.set()
        stage.log.producer().publish_now(KEYS, record.digest.encode(), record)
        until(lambda: http.get("session").status_code != 200, "nobody is let in")
        assert http.get("queue").status_code == http.post("session", json={"key": secret}).status_code == 503
