"""What people say, over HTTP: who may speak as whom, what is stored, and what is refused with which words."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest

from claw_r1.datapool.personal_words import Feedback
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.gateway.control import idempotency_keys
from claw_r1.schemas.api_keys import ApiKey, new_key
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import KeyRecorded, OutputEdited, PreferenceGiven, RewardAssigned, StepCurated
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import KEYS, REWARDS
from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import House, post
from tests.gateway.http.test_auth_topic import record
from tests.gateway.processes import GatewayProcess
from tests.patience import until

FEEDBACK, PREFERENCES = "/t/g/v1/feedback", "/groups/g/preferences"
ADA = {"who": "ada"}
APP = ApiKey("operator", b"digest", name="app")


def annotator(key: str, name: str) -> Record:
    """The record of an annotator's key."""
    digest = sha256(key.encode()).hexdigest()
    event = KeyRecorded(envelope=envelope("test"), digest=digest, name=name, role="annotator")
    return record(key, Outgoing.of(KEYS, digest.encode(), event).value)


@pytest.fixture
def house(house: House) -> House:
    """A gateway where every request comes under an operator's key: of an app that stands before many people."""
    house.keys.everyones = APP
    return house


def words(house: House) -> Feedback:
    return Feedback(event.event() for event in house.log.reader([REWARDS]).read_to_end())


async def test_an_item_becomes_its_events_under_the_groups_key(house: House) -> None:
    """Thumb, scores and edit of a call in one act, its comment with the first; a comment alone is a note."""
    item = {"call_id": "c", "thumb": "up", "score": 0.5, "scores": {"style": 1}, "edit": "Better.", "comment": "nice"}
    status, reply, _ = await post(house, FEEDBACK, {**item, **ADA})
    assert status == 200
    rewards, (edit,) = house.events(RewardAssigned, REWARDS), house.events(OutputEdited, REWARDS)
    assert {event.name: event.value for event in rewards} == {"thumb": 1.0, "overall": 0.5, "style": 1.0}
    assert {(event.source, event.call_id, event.trajectory_id) for event in (*rewards, edit)} == {
        ("human:ada", "c", "t")
    }
    assert reply["event_ids"] == [event.envelope.event_id for event in (*rewards, edit)]
    assert {event.revision for event in rewards} == {event.envelope.occurred_at_us for event in rewards}
    assert (await post(house, "/t/g/feedback", {"call_id": "c", "comment": "hm", **ADA}))[0] == 200
    (note,) = house.events(StepCurated, REWARDS)
    assert (note.note, note.who) == ("hm", "ada")
    assert {event.key for event in house.log.reader([REWARDS]).read_to_end()} == {group_key("g")}


async def test_a_list_is_stored_whole_or_not_at_all(house: House) -> None:
    """Each item with its own person and subject; one that cannot stand keeps the others back, and is named."""
    items = [
        {"thumb": "up", "who": "ada"},
        {"thumb": "down", "who": "ben"},
        {"call_id": "c", "thumb": "up", "who": "ada"},
    ]
    assert (await post(house, FEEDBACK, items))[0] == 200
    assert {(word.who, word.value, str(word.subject)) for word in words(house).standing()} == {
        ("ada", 1.0, "g/t/c"),
        ("ada", 1.0, "g/t"),
        ("ben", 0.0, "g/t"),
    }
    for wrong, status, text in (
        ({"edit": "x", "who": "ada"}, 422, "3: edit is of one call"),
        ({"thumb": "down", "who": "ada"}, 422, "3: again:"),
        ({"thumb": "sideways", "who": "ada"}, 400, "3.thumb"),
    ):
        answered, reply, _ = await post(house, FEEDBACK, [*items, wrong])
        assert (answered, text in reply["error"]["message"]) == (status, True), reply
    assert len(house.events(RewardAssigned, REWARDS)) == 3


async def test_what_is_withdrawn_no_longer_stands(house: House) -> None:
    """By name, of that person alone; what is withdrawn and said at once is refused."""
    both = [{"thumb": "up", "scores": {"style": 1}, "who": who} for who in ("ada", "ben")]
    assert (await post(house, FEEDBACK, both))[0] == 200
    assert (await post(house, FEEDBACK, {"withdraw": ["thumb", "style"], **ADA}))[0] == 200
    assert {(word.who, word.name) for word in words(house).standing()} == {("ben", "thumb"), ("ben", "style")}
    status, reply, _ = await post(house, FEEDBACK, {"withdraw": ["thumb"], "thumb": "up", **ADA})
    assert (status, "withdraw contradicts" in reply["error"]["message"]) == (422, True)


async def test_preferences_of_a_group(house: House) -> None:
    """Trajectories by their ids, calls by both; ties, withdrawals and a list; ids with a slash are quoted."""
    calls = [{"trajectory_id": name, "call_id": "c"} for name in ("t", "u")]
    items = [
        {"chosen": "t", "rejected": "u", "strength": 0.5, "comment": "clearer", **ADA},
        {"chosen": calls[0], "rejected": calls[1], "outcome": "tie", "name": "style", **ADA},
    ]
    assert (await post(house, PREFERENCES, items))[0] == 200
    assert (await post(house, "/v1/groups/a%2Fb/preferences", {**items[0], "outcome": "both_bad"}))[0] == 200
    first, second, third = house.events(PreferenceGiven, REWARDS)
    assert (first.chosen.trajectory_id, first.rejected.trajectory_id, first.outcome) == ("t", "u", "chosen")
    assert (first.strength, first.comment, first.source) == (0.5, "clearer", "human:ada")
    assert (second.chosen.call_id, second.outcome, second.name) == ("c", "tie", "style")
    assert (third.group_id, third.outcome) == ("a/b", "both_bad")
    assert (await post(house, PREFERENCES, {"chosen": "u", "rejected": "t", "outcome": "withdrawn", **ADA}))[0] == 200
    assert [word.name for word in words(house).standing("g")] == ["style"]


async def test_the_same_request_under_its_key_is_the_same_fact(house: House) -> None:
    """Of each person: an app's batch may repeat a key for all of them."""
    for path, body in ((FEEDBACK, {"thumb": "up"}), (PREFERENCES, {"chosen": "t", "rejected": "u"})):
        both = [{**body, "who": "ada"}, {**body, "who": "ben"}]
        ids = [(await post(house, path, both, idempotency_key="k"))[1]["event_ids"] for _ in range(2)]
        assert ids[0] == ids[1]
        assert len(set(ids[0])) == 2
    assert len(words(house).history()) == 4


REWARDED = {"source": "user", "name": "overall"}


@pytest.mark.parametrize(
    ("path", "up", "down"),
    [
        (FEEDBACK, {"score": 1, **ADA}, {"score": 0, **ADA}),
        ("/t/g/v1/rewards", {"value": 1, **REWARDED}, {"value": 0, **REWARDED}),
    ],
)
async def test_a_late_retry_does_not_undo_what_was_said_in_between(
    house: House, path: str, up: object, down: object
) -> None:
    """k1 up, k2 down, k1 up again: the same event, with the time and revision of the first, so down stands."""
    replies = [(await post(house, path, body, idempotency_key=key))[1] for body, key in ((up, "1"), (down, "2"))]
    assert (await post(house, path, up, idempotency_key="1"))[1] == replies[0]
    said = house.events(RewardAssigned, REWARDS)
    assert [event.value for event in said] == [1.0, 1.0, 0.0], "in order of their time"
    assert said[0] == said[1]
    assert max(said, key=lambda event: (event.revision, event.envelope.occurred_at_us)).value == 0.0


@pytest.mark.parametrize(
    ("path", "first", "other"),
    [
        (FEEDBACK, {"thumb": "up", **ADA}, {"thumb": "down", **ADA}),
        (FEEDBACK, {"thumb": "up", **ADA}, {"scores": {"style": 1}, **ADA}),
        (FEEDBACK, {"thumb": "up", **ADA}, [{"thumb": "up", **ADA}, {"call_id": "c", "thumb": "up", **ADA}]),
        (PREFERENCES, {"chosen": "t", "rejected": "u", **ADA}, {"chosen": "u", "rejected": "t", **ADA}),
        ("/t/g/v1/rewards", {"value": 1, **REWARDED}, {"value": 1, "call_id": "c", **REWARDED}),
    ],
)
async def test_one_key_is_for_one_body(house: House, path: str, first: object, other: object) -> None:
    """Else 409, and nothing is stored; a request that was refused has used no key, and other people's have their own."""
    assert (await post(house, path, {"odd": 1}, idempotency_key="k"))[0] == 400
    refused = (
        {**REWARDED, "value": 1, "source": "human:ada", "revision": 1 << 62} if "rewards" in path else {"who": "a/b"}
    )
    assert (await post(house, path, refused, idempotency_key="k"))[0] in (400, 422)
    assert (await post(house, path, first, idempotency_key="k"))[0] == 200
    status, reply, _ = await post(house, path, other, idempotency_key="k")
    assert (status, reply["error"]["code"]) == (409, "idempotency_key_reused")
    assert len(list(house.log.reader([REWARDS]).read_to_end())) == 1
    assert (await post(house, path, other, idempotency_key="l"))[0] == 200


async def test_keys_that_are_remembered_have_a_bound(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten; a repetition is the same event then, at its own time."""
    monkeypatch.setattr(idempotency_keys, "KEYS_MAX", 2)
    for name in ("1", "2", "3", "1"):
        assert (await post(house, FEEDBACK, {"thumb": "up", **ADA}, idempotency_key=name))[0] == 200
    first, *_, again = house.events(RewardAssigned, REWARDS)
    assert first.envelope.event_id == again.envelope.event_id
    assert first.revision < again.revision


@pytest.mark.parametrize(
    ("path", "body", "status", "words_of_it"),
    [
        (FEEDBACK, {"thumb": "up"}, 422, "who is missing: name the person who judges"),
        (FEEDBACK, {"thumb": "up", "who": "a/b"}, 422, "who must hold no /"),
        (FEEDBACK, {"thumb": "up", "who": "human:ada"}, 422, "who is the name alone"),
        (FEEDBACK, ADA, 422, "nothing is said"),
        (FEEDBACK, {"score": 1, "scores": {"overall": 1}, **ADA}, 422, "score is the score called overall"),
        (FEEDBACK, {"scores": {"thumb": 1}, **ADA}, 422, "must not be called thumb"),
        (FEEDBACK, {"score": 1e31, **ADA}, 400, "score"),
        (FEEDBACK, {"vote": 1, **ADA}, 400, "vote"),
        (FEEDBACK, [], 400, "at least 1"),
        (FEEDBACK, {"edit": {"role": "user", "content": "x"}, "call_id": "c", **ADA}, 422, "assistant's message"),
        (PREFERENCES, {"chosen": "t", "rejected": "t", **ADA}, 422, "rejected is the same as chosen"),
        (
            PREFERENCES,
            {"chosen": "t", "rejected": {"trajectory_id": "u", "call_id": "c"}, **ADA},
            422,
            "must be a call",
        ),
        (PREFERENCES, {"chosen": "t", "rejected": "u", "strength": 2, **ADA}, 400, "strength"),
        ("/v1/feedback", {"thumb": "up", **ADA}, 404, "the path must name a trajectory"),
    ],
)
async def test_what_cannot_be_stored_is_refused_in_clear_words(
    house: House, path: str, body: object, status: int, words_of_it: str
) -> None:
    """400 where the body has another form, 422 where what it says cannot stand; nothing is stored."""
    answered, reply, _ = await post(house, path, body)
    assert answered == status
    assert words_of_it in reply["error"]["message"]
    assert words(house).history() == []


@pytest.fixture
def guarded() -> Iterator[tuple[House, dict[str, str]]]:
    """A gateway with keys: of an operator, an agent, the annotator ada, and one whose name is none."""
    configured, entry = new_key("operator")
    keys = {"operator": configured, "agent": new_key("agent")[0], "ada": new_key("annotator")[0]}
    keys |= {"a/b": new_key("annotator")[0], "reader": new_key("reader")[0]}
    with ScriptedEngine() as engine, House(upstreams=engine.url, api_keys=entry) as house:
        house.keys.apply(record(keys["agent"]))
        house.keys.apply(record(keys["reader"], role="reader"))
        for name in ("ada", "a/b"):
            house.keys.apply(annotator(keys[name], name))
        yield house, keys


async def sent(house: House, key: str, path: str, body: object) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(headers={"x-api-key": key}) as session,
        session.post(house.url + path, json=body) as reply,
    ):
        return reply.status, await reply.text()


async def test_an_annotator_speaks_as_itself_and_as_nobody_else(guarded: tuple[House, dict[str, str]]) -> None:
    """By its key's name, which it need not say; also where it gives a reward, whose source is `agent` for others."""
    house, keys = guarded
    pair = {"chosen": "t", "rejected": "u"}
    for path, body in ((FEEDBACK, {"thumb": "up"}), (PREFERENCES, pair), ("/t/g/v1/rewards", {"value": 1})):
        assert (await sent(house, keys["ada"], path, body))[0] == 200
    assert {word.source for word in words(house).standing()} == {"human:ada"}
    assert len(words(house).standing()) == 3
    for path, body in (
        (FEEDBACK, {"thumb": "up", "who": "ben"}),
        (PREFERENCES, {**pair, "who": "ben"}),
        ("/t/g/v1/rewards", {"value": 1, "source": "agent"}),
        ("/t/g/v1/rewards", {"value": 1, "source": "human:ben"}),
        ("/t/g/v1/complete_trajectory", {}),
    ):
        status, text = await sent(house, keys["ada"], path, body)
        assert (status, json.loads(text)["error"]["code"]) == (403, "forbidden"), text
    assert (await sent(house, keys["ada"], "/t/g/v1/rewards", {"value": 1, "source": "human:ada"}))[0] == 200
    for path, body in ((FEEDBACK, {"thumb": "up"}), ("/t/g/v1/rewards", {"value": 1})):
        assert (await sent(house, keys["a/b"], path, body))[0] == 422


async def test_operators_name_who_speaks_and_agents_and_readers_speak_for_nobody(
    guarded: tuple[House, dict[str, str]],
) -> None:
    """An app shows replies to many users; its key stands for none of them. Who is trained is no person."""
    house, keys = guarded
    assert (await sent(house, keys["operator"], FEEDBACK, {"thumb": "up", "who": "ben"}))[0] == 200
    assert (await sent(house, keys["operator"], FEEDBACK, {"thumb": "up"}))[0] == 422
    for path, body in (
        (FEEDBACK, {"thumb": "up", **ADA}),
        (PREFERENCES, {"chosen": "t", "rejected": "u", **ADA}),
        ("/v1/groups/g/preferences", {"chosen": "t", "rejected": "u", **ADA}),
    ):
        for role in ("agent", "reader"):
            status, text = await sent(house, keys[role], path, body)
            assert (status, json.loads(text)["error"]["code"]) == (403, "forbidden"), text
    assert {word.who for word in words(house).standing()} == {"ben"}


async def test_a_path_that_ends_in_a_new_line_is_none(house: House) -> None:
    """FastAPI's patterns overlook it, and would serve what nobody has looked at."""
    for path, body in (("/v1/feedback%0A", {"thumb": "up"}), (f"{PREFERENCES}%0A", {"chosen": "t", "rejected": "u"})):
        status, reply, _ = await post(house, path, {**body, **ADA})
        assert (status, reply["error"]["param"]) == (400, "path")
    assert not list(words(house).standing())


async def test_without_a_key_nobody_speaks_for_people(engine: ScriptedEngine) -> None:
    """An agent of this machine needs none; who judges says who it is."""
    with House(upstreams=engine.url) as open_house:
        for path, body in ((FEEDBACK, {"thumb": "up"}), (PREFERENCES, {"chosen": "t", "rejected": "u"})):
            status, reply, _ = await post(open_house, path, {**body, **ADA})
            assert (status, "annotator or operator" in reply["error"]["message"]) == (403, True), reply
        key = new_key("annotator")[0]
        open_house.keys.apply(annotator(key, "ada"))
        assert (await sent(open_house, key, FEEDBACK, {"thumb": "up"}))[0] == 200
        assert [word.who for word in words(open_house).standing()] == ["ada"]


async def test_an_annotators_reward_is_its_latest_word(guarded: tuple[House, dict[str, str]]) -> None:
    """Without a revision it comes after what was said before; its name is one that feedback may have."""
    house, keys = guarded
    assert (await sent(house, keys["ada"], FEEDBACK, {"scores": {"style": 0.25}}))[0] == 200
    assert (await sent(house, keys["ada"], "/t/g/v1/rewards", {"name": "style", "value": 0.75}))[0] == 200
    assert [word.value for word in words(house).standing()] == [0.75]
    for name in ("a/b", "thumb", "edit"):
        status, text = await sent(house, keys["ada"], "/t/g/v1/rewards", {"name": name, "value": 1})
        assert (status, json.loads(text)["error"]["param"]) == (422, "name"), text


async def test_a_persons_reward_is_never_ahead_of_its_time(guarded: tuple[House, dict[str, str]]) -> None:
    """A revision above now would silence that person; scorers' revisions are their own."""
    house, keys = guarded
    reward = {"name": "style", "value": 1, "revision": (1 << 63) - 1}
    for key, source in (("operator", {"source": "human:ann"}), ("ada", {})):
        status, text = await sent(house, keys[key], "/t/g/v1/rewards", {**reward, **source})
        assert (status, json.loads(text)["error"]["param"]) == (422, "revision"), text
    assert (await sent(house, keys["operator"], "/t/g/v1/rewards", {**reward, "source": "judge"}))[0] == 200
    assert words(house).history() == []


async def test_feedback_that_cannot_be_stored_is_refused_and_may_be_sent_again(house: House) -> None:
    """As a reward is: 503 with Retry-After, no silent loss."""
    house.log.refusing = True
    status, reply, headers = await post(house, FEEDBACK, {"thumb": "up", **ADA})
    assert (status, reply["error"]["code"], headers["retry-after"]) == (503, "not_captured", "1")


@pytest.mark.kafka
@pytest.mark.process
async def test_feedback_is_on_the_real_broker_when_it_is_answered(
    log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """Thumb, edit and preference, read back as what stands; under its key a repeated request adds no word."""
    key, entry = new_key("operator")
    running = GatewayProcess(log_settings, tmp_path, "--upstream", engine.url, "--api-keys", entry)
    try:
        async with aiohttp.ClientSession(running.url, headers={"idempotency-key": "k", "x-api-key": key}) as session:
            for path, body in (
                (FEEDBACK, [{"call_id": "c", "thumb": "down", "edit": "Better.", **ADA}, {"comment": "long", **ADA}]),
                (PREFERENCES, {"chosen": "t", "rejected": "u", **ADA}),
                (PREFERENCES, {"chosen": "t", "rejected": "u", **ADA}),
            ):
                async with session.post(path, json=body) as reply:
                    assert reply.status == 200, await reply.text()
        events = [item.event() for item in read_topics(log_settings, [REWARDS])]
        assert len(events) == 5
        assert sorted(word.kind for word in Feedback(events).standing()) == ["comment", "edit", "preference", "thumb"]
        assert {len({word.act_id}) for word in Feedback(events).history()} == {1}
    finally:
        running.kill()
        until(lambda: running.process.poll() is not None)
