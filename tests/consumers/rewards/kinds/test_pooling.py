"""The kind that asks a reward model, before a scripted server."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.judged import Judged, JudgedCall, JudgedMessage
from claw_r1.consumers.rewards.kinds import kind_of
from claw_r1.consumers.rewards.kinds.pooling import RewardModel
from claw_r1.consumers.rewards.scorer import GaveUp, Opinion
from tests.consumers.rewards.kinds.odd_json import ODD_JSON, check_it_can_be_kept
from tests.consumers.rewards.scripted_http import Answerer, HttpRequest, serving

BASE = {"source": "model", "name": "helpful", "use": "pooling", "version": 1, "scope": "trajectory", "timeout_s": 5}


def user(text: str) -> JudgedMessage:
    return {"role": "user", "content": text}


def reply(text: str) -> JudgedMessage:
    return {"role": "assistant", "content": text}


FIRST = JudgedCall(call_id="a", messages=(user("1"),), reply=reply("one"), after=(user("2"),))
SECOND = JudgedCall(call_id="b", messages=(user("1"), reply("one"), user("2")), reply=reply("two"))
WHOLE = (user("1"), reply("one"), user("2"), reply("two"))


def subject(scope: Any = "trajectory", calls: tuple[JudgedCall, ...] = (FIRST, SECOND)) -> Judged:
    return Judged(scope=scope, group_id="g", trajectory_id="t", calls=calls, conversation=WHOLE)


def settings_of(**settings: object) -> Any:
    return kind_of("pooling").settings.model_validate({**BASE, "url": "http://127.0.0.1:1", **settings})


@contextmanager
def asking(answer: Answerer, **settings: object) -> Iterator[tuple[RewardModel, list[HttpRequest]]]:
    with serving(answer) as (url, requests):
        scorer = kind_of("pooling").open(settings_of(url=url, **settings))
        assert isinstance(scorer, RewardModel)
        try:
            yield scorer, requests
        finally:
            scorer.close()
            scorer.close()


def classified(*probs: float, tokens: int = 7) -> web.Response:
    row = {"index": 0, "label": "LABEL_0", "probs": probs, "num_classes": len(probs)}
    return web.json_response({"object": "list", "data": [row], "usage": {"prompt_tokens": tokens}})


def pooled(*rows: list[float]) -> web.Response:
    return web.json_response({"data": [{"index": 0, "object": "pooling", "data": rows}], "usage": {"prompt_tokens": 9}})


def opinion(scorer: RewardModel, judged: Judged) -> Opinion:
    (future,) = scorer.judge([judged])
    return future.result(10)


def failure(scorer: RewardModel, judged: Judged | None = None) -> GaveUp:
    with pytest.raises(GaveUp) as caught:
        opinion(scorer, judged or subject())
    return caught.value


def test_a_trajectory_is_its_conversation_and_its_raw_logit() -> None:
    with asking(lambda _: classified(1.25)) as (scorer, requests):
        assert opinion(scorer, subject()) == Opinion(values=(1.25,), tokens=7)
    (request,) = requests
    assert request.path == "/classify"
    assert request.body == {"messages": list(WHOLE), "use_activation": False}


def test_a_call_ends_with_its_reply_and_a_turn_with_what_came_after_it() -> None:
    with asking(lambda _: classified(0.5), scope="call") as (scorer, requests):
        opinion(scorer, subject("call", (FIRST,)))
        opinion(scorer, subject("next", (FIRST,)))
        opinion(scorer, subject("next", (SECOND,)))
    sent = [request.body["messages"] for request in requests]
    assert sent == [list(WHOLE[:2]), list(WHOLE[:3]), list(WHOLE)]


def test_steps_are_each_in_the_conversation_that_their_call_had() -> None:
    aside = JudgedCall(call_id="c", messages=(user("another"),), reply=reply("branch"))
    said = {2: 0.2, 4: 0.4}
    with asking(lambda n: classified(said[len(requests[n].body["messages"])])) as (scorer, requests):
        assert opinion(scorer, subject("steps", (FIRST, SECOND, aside))) == Opinion(values=(0.2, 0.4, 0.2), tokens=21)


def test_rows_per_token_mean_the_last_one() -> None:
    with asking(lambda _: pooled([0.1], [0.2], [0.9]), endpoint="pooling", model="prm") as (scorer, requests):
        assert opinion(scorer, subject()).values == (0.9,)
    assert (requests[0].path, requests[0].body["task"], requests[0].body["model"]) == (
        "/pooling",
        "token_classify",
        "prm",
    )


def test_a_step_tag_stands_behind_each_reply_and_has_a_row_each() -> None:
    tagged = {"scope": "steps", "endpoint": "pooling", "step_tag": "<s>", "index": 1}
    with asking(lambda _: pooled([0.9, 0.1], [0.3, 0.7]), **tagged) as (scorer, requests):
        assert opinion(scorer, subject("steps")) == Opinion(values=(0.1, 0.7), tokens=9)
        assert failure(scorer, subject("steps", (SECOND,))).reason == "wrong_length"
        aside = JudgedCall(call_id="c", messages=(user("other"), reply("x"), user("y")), reply=reply("z"))
        assert failure(scorer, subject("steps", (FIRST, aside))).reason == "wrong_shape"
    assert [message["content"] for message in requests[0].body["messages"]] == ["1", "one<s>", "2", "two<s>"]


@given(st.floats(-1e6, 1e6), st.floats(-1e3, 1e3), st.floats(0.01, 1e3))
def test_scale_clips_and_maps_to_zero_and_one(logit: float, low: float, width: float) -> None:
    value = settings_of(scale=[low, low + width]).scaled(logit)
    assert 0.0 <= value <= 1.0
    if low <= logit <= low + width:
        assert value == pytest.approx((logit - low) / width)
    else:
        assert value == float(logit > low)


def test_of_several_labels_one_is_named() -> None:
    with asking(lambda _: classified(0.1, 0.9)) as (scorer, _):
        error = failure(scorer)
    assert (error.reason, error.tokens) == ("wrong_shape", 7)
    assert "index" in error.detail
    with asking(lambda _: classified(0.1, 0.9), index=1) as (scorer, _):
        assert opinion(scorer, subject()).values == (0.9,)
    with asking(lambda _: classified(0.1, 0.9), index=2) as (scorer, _):
        assert failure(scorer).reason == "wrong_shape"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: web.Response(text="<html>"), "not_json"),
        (lambda: web.Response(text='{"data": [{"probs": [NaN]}]}'), "not_a_number"),
        (lambda: web.Response(text='{"data": [{"probs": [1e999]}]}'), "not_a_number"),
        (lambda: web.json_response([]), "wrong_shape"),
        (lambda: web.json_response({"data": []}), "wrong_shape"),
        (lambda: web.json_response({"data": [{"probs": []}]}), "wrong_shape"),
        (lambda: web.json_response({"data": [{"probs": ["1"]}]}), "wrong_shape"),
        (lambda: web.json_response({"data": [{"probs": [True]}]}), "wrong_shape"),
        (lambda: web.json_response({"data": [{"probs": [10**400]}]}), "wrong_shape"),
        (lambda: web.json_response({"data": [{"embedding": [0.1]}]}), "wrong_shape"),
        (lambda: web.json_response({"detail": "Not Found"}, status=404), "wrong_shape"),
        (lambda: web.json_response({"error": {"message": "maximum context length is 16"}}, status=400), "too_long"),
        (lambda: web.json_response({"error": {"message": "no"}}, status=400), "refused"),
        (lambda: web.Response(status=503, headers={"retry-after": "60"}), "unavailable"),
        (lambda: 60.0, "deadline"),
    ],
)
def test_whatever_a_server_answers_is_a_word_and_the_next_subject_is_served(answer: Any, reason: str) -> None:
    timeout_s = 2.0 if reason == "deadline" else 20.0
    with asking(lambda n: classified(1.0) if n else answer(), timeout_s=timeout_s) as (scorer, _):
        assert failure(scorer).reason == reason
        assert opinion(scorer, subject()).values == (1.0,)


@settings(max_examples=60, deadline=None)
@given(odd=ODD_JSON, place=st.sampled_from(range(6)), endpoint=st.sampled_from(["classify", "pooling"]))
def test_whatever_json_a_server_answers_with_is_a_verdict_or_a_word(odd: str, place: int, endpoint: str) -> None:
    """In each place of an answer."""
    row = '{"data": [{"probs": %s, "data": %s}]}'
    counted = '{"data": [{"probs": [1], "data": [[1]]}], "usage": {"prompt_tokens": %s}}'
    forms = ["%s", '{"data": %s}', '{"data": [%s]}', row % ("[%s]", "0"), row % ("0", "[%s]"), counted]
    text = forms[place] % odd
    with asking(lambda _: web.Response(text=text), endpoint=endpoint) as (scorer, _):
        (future,) = scorer.judge([subject()])
        check_it_can_be_kept(future.exception(30) or future.result())


def test_the_cost_of_a_server_that_does_not_count_is_estimated() -> None:
    """By the characters of what it was shown, and the verdict says so."""
    silent = web.json_response({"data": [{"index": 0, "probs": [1.0]}]})
    long = JudgedCall(call_id="a", messages=(user("x" * 4000),), reply=reply("y"))
    with asking(lambda _: silent) as (scorer, _):
        said = opinion(scorer, subject("call", (long,)))
    assert 1000 <= said.tokens < 1100
    assert said.detail == "tokens are estimated: the server did not count them"


def test_words_that_are_lost_are_not_made_up() -> None:
    silent = JudgedCall(call_id="a", messages=(user("1"),))
    with asking(lambda _: classified(1.0)) as (scorer, requests):
        assert failure(scorer, subject("call", (silent,))).reason == "text_lost"
        assert failure(scorer, Judged(scope="trajectory", group_id="g")).reason == "text_lost"
        assert failure(scorer, subject("call", (JudgedCall(call_id="a", reply=reply("x")),))).reason == "text_lost"
        assert (
            failure(
                scorer, subject("call", (JudgedCall(call_id="a", messages=(user("\ud800"),), reply=reply("")),))
            ).reason
            == "unreadable"
        )
        assert opinion(scorer, subject("steps", ())).values == ()
    assert not requests


def test_a_step_that_fails_fails_the_subject_and_what_the_others_cost_is_kept() -> None:
    refused = web.json_response({}, status=400)
    with asking(lambda n: classified(1.0) if n == 0 else refused, scope="steps", concurrency=1) as (scorer, _):
        error = failure(scorer, subject("steps"))
    assert (error.reason, error.tokens) == ("refused", 7)


def test_time_runs_from_a_subject_s_turn_on() -> None:
    def slow(_: int) -> web.StreamResponse:
        time.sleep(0.5)  # the server is busy with one at a time
        return classified(1.0)

    with asking(slow, concurrency=1, timeout_s=2.0) as (scorer, requests):
        futures = scorer.judge([subject()] * 5)
        assert [future.result(10).values for future in futures] == [(1.0,)] * 5
    assert len(requests) == 5


def test_what_is_asked_for_is_said_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARD_KEY", "secret")
    words = {"truncate": True, "use_activation": True, "key_variable": "REWARD_KEY"}
    with asking(lambda _: classified(1.0), **words) as (scorer, requests):
        opinion(scorer, subject())
    body = {"truncate_prompt_tokens": -1, "truncation_side": "left", "use_activation": True, "messages": list(WHOLE)}
    assert requests[0].body == body
    assert requests[0].headers["authorization"] == "Bearer secret"


def test_settings_that_contradict_each_other_are_refused() -> None:
    for wrong in (
        {"url": "127.0.0.1:8202"},
        {"scale": [1, 1]},
        {"scale": [5, -5]},
        {"step_tag": "<s>"},
        {"step_tag": "<s>", "scope": "steps"},
        {"labels": ["good"]},
    ):
        with pytest.raises(ValidationError):
            settings_of(**wrong)
    with pytest.raises(ConsumerError, match="NO_SUCH_KEY"):
        kind_of("pooling").open(settings_of(key_variable="NO_SUCH_KEY"))
