"""Whatever the log holds and an address asks is answered in bounded time: strange values, long values, threads that meet."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from claw_r1.consumers.dashboard.answer_cache import KeptAnswers
from claw_r1.consumers.dashboard.routes import trajectory
from claw_r1.consumers.dashboard.tokens.pieces import NoTokenizer
from claw_r1.consumers.dashboard.tokens.vocabularies import Vocabularies
from claw_r1.datapool.runs import Run
from claw_r1.eventlog.dead_letters import dead_letter
from claw_r1.schemas.arrays import pack_floats
from claw_r1.schemas.events import CallCaptured, Edge, FactPosition
from claw_r1.schemas.topics import CALLS
from tests import facts
from tests.consumers.dashboard.conversations import told
from tests.consumers.dashboard.stage import DashboardStage, episode, said
from tests.consumers.dashboard.token_scenes import planned, write_tokenizer
from tests.consumers.runs import observed
from tests.patience import PATIENCE_S

NESTED = b"[" * 300 + b"]" * 300
NAN = pack_floats([float("nan"), float("-inf"), -0.5])


def nested(trajectory: str) -> CallCaptured:
    """A call whose request orjson reads and does not write."""
    request = Edge(suffix=NESTED, full_length=len(NESTED), full_digest="")
    call: CallCaptured = facts.call("g", trajectory, f"{trajectory}-0", request=request)
    return call


class Asker:
    """Somebody who asks in process."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        client.get("/api/v1/session")

    def __call__(self, path: str, status: int = 200, **query: Any) -> Any:
        answer = self.client.get(f"/api/v1/{path}", params=query)
        assert answer.status_code == status, answer.text
        return answer.json()


@contextmanager
def asking(stage: DashboardStage) -> Iterator[Asker]:
    with TestClient(stage.page(), base_url="http://127.0.0.1:8200", raise_server_exceptions=False) as client:
        stage.wait_read()
        yield Asker(client)


def test_who_asks_the_runs_and_then_the_pool_is_not_waited_for_by_why() -> None:
    """Why a trajectory is trained is asked in the one order, so two threads never hold what the other needs."""
    stage = DashboardStage(told(1))
    stage.page()
    source, held = stage.source, threading.Event()
    source.start()
    stage.wait_read()
    row, tree = trajectory._outline(source, "g", "t")

    def of_both() -> None:
        def question(_: object) -> None:
            held.set()
            time.sleep(0.3)
            source.pool.ask(lambda rows: rows)

        source.ask_runs(question)

    def why() -> None:
        held.wait(PATIENCE_S)
        trajectory._why(source, row, tree)

    threads = [threading.Thread(target=target, daemon=True) for target in (of_both, why)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [thread.is_alive() for thread in threads] == [False, False]
    source.stop()


def test_a_run_that_planned_and_no_more_is_told() -> None:
    """It has skipped nothing, and its plan is in the lineage of what it names."""
    stage = DashboardStage(episode("g", "t", "which?", "this"))
    (at,) = [record.position for record in stage.log.reader([CALLS]).read_to_end() if b"t-0" in (record.value or b"")]
    plan = planned(["t-0"])
    place = FactPosition(topic=at.topic, partition=at.partition, offset=at.offset)
    steps = tuple(replace(step, position=place) for step in plan.trajectories[0].steps)
    stage.report(observed.started("run"), replace(plan, trajectories=(replace(plan.trajectories[0], steps=steps),)))
    with asking(stage) as ask:
        assert ask("runs/skipped", run="run") == {"total": 0, "groups": []}
        (batch,) = ask("lineage", id="t-0")["batches"]
    assert (batch["run_id"], batch["sequence"], batch["made_version"], batch["trained_us"]) == ("run", 0, None, None)


def test_a_dead_letter_of_strange_numbers_is_shown() -> None:
    """What is no finite number is null; nesting that JSON cannot have is a problem with the bytes; no letter is 404."""
    stage = DashboardStage([said("g", "t", "a", "b", response_logprobs=NAN), nested("u")])
    records = [record for record in stage.log.reader([CALLS]).read_to_end() if record.value]
    places = stage.log.append([dead_letter(record, "poison", "no", reader="streams") for record in records])
    with asking(stage) as ask:
        first, second = (ask("operations/letter", id=f"{at.partition}@{at.offset}") for at in places)
        ask("operations/letter", 404, id="0@999")
        ask("operations/letter", 404, id="999999999@0")
    assert (first["value"]["response_logprobs"], first["problem"]) == ([None, None, -0.5], None)
    assert (second["value"], second["hex"][:2]) == (None, "00")
    assert "cannot be shown" in second["problem"]


def test_log_probabilities_that_are_no_number_are_shown_beside_each_other() -> None:
    """As `/tokens` shows them: NaN is null, infinity a number beyond float32."""
    calls = [said("g", name, "which?", "this", response_logprobs=NAN) for name in ("a", "b")]
    with asking(DashboardStage(calls)) as ask:
        side = ask("group/tokens", g="g", a="a", b="b")["sides"][0]
    assert [token[1] for token in side["tokens"]] == [None, None, None, None, -3.4e38, -0.5]


def test_a_row_has_its_ids_beside_its_columns() -> None:
    """Whoever names `id` among the columns is answered without it."""
    with asking(DashboardStage(episode("g", "t", "which?", "this", 1.0))) as ask:
        assert [row["values"] for row in ask("rows", columns="id")["rows"]] == [{}]
        (row,) = ask("rows", columns="id,return", sort="id")["rows"]
    assert (row["ids"], row["values"]) == (["g", "t"], {"return": 1.0})


@pytest.mark.parametrize("name", ["version_min", "version_max"])
def test_a_version_beyond_64_bits_is_refused(name: str) -> None:
    """It fits in no store that is asked."""
    with asking(DashboardStage(episode("g", "t", "which?", "this"))) as ask:
        for value in (10**30, -(10**30)):
            for kind in ("trajectories", "steps"):
                assert name in ask("rows", 422, kind=kind, **{name: value})["detail"]
        ask("rows", kind="steps", **{name: (1 << 62) - 1})


def test_a_record_nested_too_deeply_has_its_size() -> None:
    """And a sentence instead of its value."""
    with asking(DashboardStage([nested("t")])) as ask:
        record = ask("record", g="g", t="t", c="t-0")
    assert (record["value"], record["size"] > 0) == (None, True)
    assert "cannot be shown as JSON" in record["problem"]


def test_a_run_names_files_of_some_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes to the log names any path: each is read or refused in a sentence."""

    def run_of(name: str) -> Run:
        run = Run("run")
        run.take(observed.started(config=orjson.dumps({"model_dir": name}).decode()))
        return run

    def refusal(name: str) -> str:
        with pytest.raises(NoTokenizer) as error:
            Vocabularies().of([run_of(name)])
        return str(error.value)

    write_tokenizer(tmp_path / "model")
    (tmp_path / "odd" / "tokenizer.json").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert Vocabularies().of([run_of(str(tmp_path / "model"))]).token(0)
    assert Vocabularies().of([run_of("model")]).token(0)  # as trainers may say it
    assert "there is no" in refusal("/a\0b")
    assert "no file of at most" in refusal(str(tmp_path / "odd"))
    monkeypatch.setattr("claw_r1.consumers.dashboard.tokens.vocabularies.FILE_BYTES_MAX", 10)
    assert "at most 10 bytes" in refusal(str(tmp_path / "model"))


def test_long_reasoning_is_cut_as_content_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have the same room; the end of the content comes first."""
    monkeypatch.setattr("claw_r1.consumers.dashboard.routes.tokens.CHARACTERS_MAX", 30)
    message = {"role": "assistant", "content": "c" * 10, "reasoning_content": "r" * 1000}
    reply = orjson.dumps({"choices": [{"index": 0, "message": message}]})
    with asking(DashboardStage([replace(said("g", "t", "which?", ""), response_body=reply)])) as ask:
        answer = ask("tokens/messages", g="g", t="t", c="t-0")
    assert [(each["content"], each["reasoning"]) for each in answer["messages"]] == [("c" * 10, "r" * 20)]
    assert answer["cut"] is True


def test_a_trajectory_of_too_many_calls_is_named_and_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ids are, and the others' conversations are."""
    monkeypatch.setattr("claw_r1.consumers.dashboard.routes.explorer.SEARCH_CALLS", 2)
    with asking(DashboardStage(told(3, trajectory="long"), told(2, trajectory="short"))) as ask:
        answer = ask("conversations", text="step 1")
        assert [row["t"] for row in answer["matches"]] == ["short"]
        assert (answer["too_long"], answer["looked"], answer["after"]) == ([{"g": "g", "t": "long"}], 2, None)
        assert [row["t"] for row in ask("conversations", text="long")["matches"]] == ["long"]


def test_kept_answers_are_forgotten_once_something_was_done() -> None:
    """Whoever asks then is answered anew, though the other answer is fresh."""
    kept, numbers = KeptAnswers(), iter(range(9))
    answers = [kept.answer("letters", lambda: {"n": next(numbers)}, 60)["n"] for _ in range(2)]
    kept.forget()
    assert [*answers, kept.answer("letters", lambda: {"n": next(numbers)}, 60)["n"]] == [0, 0, 1]
