"""`/api/v1/tokens` and `/api/v1/record`: ids as exact text, what sampled and what trained them, and records as they stand."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from msgspec.structs import replace

from claw_r1.consumers.dashboard.tokens.pieces import Vocabulary, pieces_of
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.api_keys import new_key
from claw_r1.schemas.codec import HEADER
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import KeyRecorded
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, KEYS
from tests import facts
from tests.consumers.dashboard.stage import DashboardStage, Person
from tests.consumers.dashboard.token_scenes import planned, run_started, sampled, write_tokenizer
from tests.patience import until

FAMILY = "👨‍👩‍👧"
TEXTS = ("日本語のテキスト", f"a family {FAMILY}!", "שלום עולם", "naïve €5", "\x00 \x1b[31m \u202e")


@pytest.mark.parametrize("corpus", [(), TEXTS * 30], ids=["bytes", "merges"])
def test_the_pieces_of_a_text_are_its_bytes(tmp_path: Path, corpus: tuple[str, ...]) -> None:
    """Whatever characters are cut by tokens, nothing is lost, added or guessed."""
    tokenizer, vocabulary = write_tokenizer(tmp_path, corpus), Vocabulary(tmp_path)
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        tokens = [vocabulary.token(each) for each in ids]
        answer = pieces_of(tokens)
        assert b"".join(tokens) == text.encode()
        parts = [[piece] if isinstance(piece, str) else piece for piece in answer.pieces]
        shown_bytes = b"".join(
            part.encode() if place % 2 == 0 else bytes.fromhex(part)
            for each in parts
            for place, part in enumerate(each)
        )
        assert shown_bytes == text.encode()
        for first, last, character in answer.characters:
            assert character.encode() in b"".join(tokens[first : last + 1])
            assert last > first


def test_a_character_of_several_tokens_is_bytes_and_told_once() -> None:
    """A euro sign in two tokens, and a reply that is cut off in one."""
    euro = "€".encode()
    whole = pieces_of([b"a" + euro[:2], euro[2:] + b"b"])
    assert (whole.pieces, whole.characters) == ([["a", "E2 82"], ["", "AC", "b"]], [(0, 1, "€")])
    cut = pieces_of([b"a", euro[:1], euro[1:2]])
    assert (cut.pieces, cut.characters) == (["a", ["", "E2"], ["", "82"]], [])


class Scene:
    """Two calls of one trajectory, of which the second goes on from the first and ends inside a character; and who asks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokenizer = write_tokenizer(folder)
        first = sampled(self.tokenizer, "c1", "日本?", "שלום")
        cut = f"{FAMILY} ".encode() + "€".encode()[:2]
        second = sampled(self.tokenizer, "c2", "go on", cut, base=first, received_us=9)
        self.stage = DashboardStage([first, second, facts.completed("g", "t", calls=2, reward=1.0)])
        self.stage.report(run_started(folder))
        self.person: Person

    def ask(self, path: str, **query: Any) -> Any:
        answer = self.person.http.get(path, params=query)
        return {"status": answer.status_code, **answer.json()}

    def ask_until(self, word: str, path: str, **query: Any) -> Any:
        """The answer, once the word stands in it: what was written last is read soon."""

        def answer() -> Any:
            said = self.ask(path, **query)
            return said if word in json.dumps(said) else None

        return until(answer, word)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "model")
    with scene.stage.served() as url:
        scene.person = Person(url)
        yield scene


def test_tokens_of_earlier_calls_are_known_in_a_prompt(scene: Scene) -> None:
    """What a prompt repeats of an earlier reply has its log-probabilities, versions and training."""
    scene.stage.report(planned(["c2"], masked=["c1"], oldest=4))
    answer = scene.ask_until('"batch": ["run", 0]', "tokens", g="g", t="t")
    assert (answer["c"], answer["previous"], answer["next"], answer["call"]) == ("c2", "c1", None, 1)
    earlier, own = answer["sampled"]
    assert [earlier["c"], own["c"]] == ["c1", "c2"]
    assert own["start"] == answer["prompt_length"]
    assert own["end"] == answer["length"] == len(answer["ids"]) == len(answer["logprobs"]) == len(answer["pieces"])
    assert [place for place, value in enumerate(answer["logprobs"]) if value is not None] == [
        *range(earlier["start"], earlier["end"]),
        *range(own["start"], own["end"]),
    ]
    half = own["start"] + (own["end"] - own["start"]) // 2
    assert own["trained"] == [[half, own["end"]]]  # version 3 is too old for the batch
    assert earlier["trained"] == []
    assert "masked" in earlier["untrained_why"]
    assert (own["advantage"], earlier["advantage"]) == (0.5, None)
    assert own["versions"][1][:2] == ["run", 4]
    assert answer["batches"][0]["return"] == 1.0
    assert answer["pieces"][-2:] == [["", "E2"], ["", "82"]]  # cut off: no character
    assert [each[2] for each in answer["characters"] if each[0] >= own["start"]] == [
        "👨",
        "\u200d",
        "👩",
        "\u200d",
        "👧",
    ]
    raw = "".join(piece if isinstance(piece, str) else "" for piece in answer["pieces"])
    assert "<|user|>" in raw
    assert answer["special"]


def test_a_range_is_exact_at_its_edges(scene: Scene) -> None:
    """A range that begins inside a character tells the same of its tokens as the whole."""
    whole = scene.ask("tokens", g="g", t="t")
    for first in range(whole["prompt_length"] - 3, whole["length"] - 1):
        part = scene.ask("tokens", g="g", t="t", **{"from": first, "to": first + 2})
        assert part["pieces"] == whole["pieces"][first : first + 2]
        assert part["logprobs"] == whole["logprobs"][first : first + 2]
        if first % 7:
            continue
        assert part["characters"] == [each for each in whole["characters"] if each[0] < first + 2 and each[1] >= first]


def test_without_its_tokenizer_ids_and_messages_are_told(scene: Scene) -> None:
    """No tokenizer, one of another model, none that can be read: a sentence, never another model's text."""
    scene.stage.report(run_started(scene.folder / "gone"))
    answer = scene.ask_until("No text", "tokens", g="g", t="t")
    assert answer["pieces"] is None
    assert "--tokenizer DIR" in answer["note"]
    scene.stage.report(run_started(Path("what\0ever")))
    scene.ask_until("what\\u0000ever", "tokens", g="g", t="t")
    scene.tokenizer.add_tokens(["xyzzy"])
    call = sampled(scene.tokenizer, "c3", "xyzzy", "xyzzy", received_us=20)
    scene.stage.report(run_started(scene.folder))
    scene.stage.tell(call)
    answer = scene.ask_until("another model", "tokens", g="g", t="t", c="c3")
    assert answer["pieces"] is None
    assert "another model" in answer["note"]
    said = scene.ask("tokens/messages", g="g", t="t", c="c2")
    assert [turn["role"] for turn in said["messages"]] == ["user", "assistant"]
    assert said["messages"][0]["content"] == "go on"
    (scene.folder / "tokenizer.json").write_text("{}")
    assert "can be read" in scene.ask("tokens", g="g", t="t")["note"]


def test_what_is_not_there_is_a_sentence(scene: Scene) -> None:
    assert scene.ask("tokens", g="g", t="t", c="none")["status"] == 404
    assert scene.ask("tokens", g="g", t="none")["status"] == 404
    scene.stage.tell(facts.call("g", "t", "c9", ids=(), prompt=facts.edge(()), received_us=99))
    assert scene.ask_until("No token ids", "tokens", g="g", t="t", c="c9")["length"] == 0


def test_a_record_is_told_with_the_command_that_prints_it(scene: Scene) -> None:
    """The command names its topic, partition and offset."""
    answer = scene.ask("record", g="g", t="t", c="c2")
    assert (answer["schema"], answer["topic"], answer["key"]) == ("CallCaptured", "claw.calls", "g")
    assert answer["value"]["call_id"] == "c2"
    assert f"--partition {answer['partition']} --offset {answer['offset']} " in answer["consumer"]


def test_records_that_cannot_be_read_are_sentences(scene: Scene) -> None:
    """A schema of the future, bytes of somebody else, a tombstone, a place that is none, a topic that is none, keys."""
    values = [HEADER.pack(0, 999_999) + b"x", b"what?", None, HEADER.pack(0, 999_999)[:3]]
    places = scene.stage.log.append([Outgoing(topic=CALLS, key=group_key("g"), value=value) for value in values])
    sentences = []
    for at in places:
        answer = scene.ask("record", topic=at.topic, partition=at.partition, offset=at.offset)
        assert answer["status"] == 200
        sentences.append(answer["problem"])
    assert "newer version" in sentences[0]
    assert "wire format" in sentences[1]
    assert "tombstone" in sentences[2]
    assert "wire format" in sentences[3]
    for status, query in (
        (404, {"topic": "claw.calls", "partition": 0, "offset": 99999}),
        (404, {"topic": "claw.none", "partition": 0, "offset": 0}),
        (404, {"topic": "claw.calls", "partition": 99, "offset": 0}),
        (403, {"topic": "claw.keys", "partition": 0, "offset": 0}),
        (422, {"topic": "claw.calls"}),
    ):
        assert scene.ask("record", **query)["status"] == status


def test_a_critics_advantage_is_not_made_up(scene: Scene) -> None:
    """A plan for a critic says 0, and so does one of another version's spec; neither is an advantage nobody had."""
    for algorithm, advantage in (("gae", None), ("grpo", 0.5)):
        plan = planned(["c1", "c2"])
        scene.stage.report(
            replace(plan, spec=orjson.dumps({"algorithm": algorithm}).decode(), run_id=f"run {algorithm}")
        )
        name = f"run {algorithm}"
        own = scene.ask_until(f'"batch": ["{name}", 0]', "tokens", g="g", t="t", run=name)["sampled"][-1]
        assert own["advantage"] == advantage
        assert own["trained"] == [[own["start"], own["end"]]]
        assert (own["advantage_why"] is None) == (advantage is not None)


def test_raw_records_are_not_for_annotators() -> None:
    """They look at tokens, as whoever judges must, and at no record."""
    stage = DashboardStage([facts.call("g", "t", "c")])
    statuses = {}
    secrets = {}
    for role in ("annotator", "reader", "operator"):
        secrets[role], entry = new_key(role)
        known = KeyRecorded(envelope=envelope("test"), digest=entry.partition(":")[2], name=role, role=role)
        stage.log.producer().publish_now(KEYS, known.digest.encode(), known)
    with stage.served(keys=True) as url:
        for role, key in secrets.items():
            with httpx.Client(base_url=f"{url}/api/v1/") as http:
                assert http.post("session", json={"key": key}).status_code == 200
                paths = ("tokens", "tokens/messages", "record")
                answers = [http.get(path, params={"g": "g", "t": "t", "c": "c"}) for path in paths]
                statuses[role] = [answer.status_code for answer in answers]
    assert statuses == {"annotator": [200, 200, 403], "reader": [200, 200, 200], "operator": [200, 200, 200]}
