"""Captured bodies of every protocol read as chat messages, and the calls of a trajectory as one conversation."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.consumers.quality.sample import Sample
from claw_r1.consumers.quality.scorers import SCORERS
from claw_r1.datapool.view.chat_format import FORMATS
from claw_r1.datapool.view.conversations import (
    CallBodies,
    conversation,
    function_parameters,
    messages,
    offered_tools,
    tools,
)
from tests import facts

BODIES = Path(__file__).parent / "bodies"
CHATS = ("chat", "responses", "messages")


def bodies(protocol: str) -> tuple[Any, Any]:
    """A request and a reply as vLLM 0.32's protocol classes have them, written by hand."""
    parsed = orjson.loads((BODIES / f"{protocol}.json").read_bytes())
    return parsed["request"], parsed["reply"]


def packed(protocol: str, request: Any, reply: Any, choice: int = 0) -> CallBodies:
    return CallBodies(protocol, orjson.dumps(request), orjson.dumps(reply), choice)


def call(texts: list[str], reply: str) -> CallBodies:
    roles = ["user", "assistant"]
    request = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return packed("chat", {"messages": request}, {"choices": [{"message": {"role": "assistant", "content": reply}}]})


def texts(calls: list[CallBodies]) -> list[str]:
    return [turn["content"] for turn in conversation(calls)]


@pytest.mark.parametrize("protocol", CHATS)
def test_the_same_talk_reads_the_same_in_every_protocol(protocol: str) -> None:
    """System text, tool calls with arguments and results, reasoning and tools, each in chat's place."""
    one = packed(protocol, *bodies(protocol))
    read = messages(one)
    assert read is not None
    assert [(m["role"], m["content"], m["reasoning"], m["tool_call_id"]) for m in read] == [
        ("system", "You are an agent.", None, None),
        ("user", "List the files.", None, None),
        ("assistant", None, "ls will do", None),
        ("tool", "a.txt", None, "call_1"),
        ("assistant", "One file.", "only a.txt", None),
    ]
    (tool_call,) = orjson.loads(read[2]["tool_calls"] or "")
    assert (tool_call["id"], tool_call["function"]["name"]) == ("call_1", "shell")
    assert orjson.loads(tool_call["function"]["arguments"]) == {"cmd": "ls"}
    assert read[-1]["tool_calls"] is None
    assert tools(one) == tools(packed("chat", *bodies("chat")))
    assert function_parameters(one) == {
        "shell": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
    }


def test_a_completion_answers_its_own_prompt() -> None:
    """Of several prompts, each with n choices; a prompt of ids has no words."""
    read = messages(packed("completions", *bodies("completions"), choice=3))
    assert read is not None
    assert [(m["role"], m["content"]) for m in read] == [("user", "Long ago"), ("assistant", " in a land")]
    ids = packed("completions", {"prompt": [1, 2]}, bodies("completions")[1])
    assert messages(ids) is None
    assert texts([ids, ids]) == [" in a land"] * 2


def test_a_step_sampled_elsewhere_has_no_bodies() -> None:
    """A protocol without bodies, or one that this reader never heard of, says nothing."""
    for protocol in ("submit_steps", "telepathy"):
        one = CallBodies.of(facts.call(protocol=protocol, response_body=b""), b"")
        assert (messages(one), tools(one), function_parameters(one), conversation([one])) == (None, None, None, [])


@pytest.mark.parametrize("protocol", CHATS)
def test_a_growing_conversation_is_shown_once_in_every_protocol(protocol: str) -> None:
    """What a request repeats is not shown again, though its client drops the reasoning."""
    request, reply = bodies(protocol)
    grown = orjson.loads(orjson.dumps(request))
    if protocol == "responses":
        grown["input"] += [reply["output"][1], {"role": "user", "content": "And now?"}]
    elif protocol == "messages":
        grown["system"][0]["text"] += " cch=another;"
        answered = {"role": "assistant", "content": [reply["content"][1]]}
        grown["messages"] += [answered, {"role": "user", "content": "And now?"}]
    else:
        answered = {"role": "assistant", "content": "One file."}
        grown["messages"] += [answered, {"role": "user", "content": "And now?"}]
    turns = conversation([packed(protocol, request, reply), packed(protocol, grown, reply)])
    assert [turn["role"] for turn in turns] == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert [turn["reasoning"] for turn in turns if turn["role"] == "assistant"] == [
        "ls will do", "only a.txt", "only a.txt",
    ]  # fmt: skip
    assert turns[2]["content"] == 'shell({"cmd":"ls"})'


def test_a_response_that_is_named_stands_before_what_goes_on_from_it() -> None:
    """`previous_response_id` repeats nothing: history is that of the call it names, instructions are each request's own."""
    first, reply = bodies("responses")
    then = {"previous_response_id": "resp_1", "input": "And now?", "instructions": "You are an agent."}
    assert texts([packed("responses", first, reply), packed("responses", then, reply)])[-3:] == [
        "One file.", "And now?", "One file.",
    ]  # fmt: skip
    elsewhere = {**then, "previous_response_id": "resp_of_another"}
    assert "— a branch —" in texts([packed("responses", first, reply), packed("responses", elsewhere, reply)])


def test_a_growing_text_is_shown_once() -> None:
    """A prompt that goes on from prompt and completion adds its new end; another one is a branch."""
    reply = {"choices": [{"index": 0, "text": "b"}]}
    calls = [packed("completions", {"prompt": prompt}, reply) for prompt in ("a", "abc", "abcb", "x")]
    assert texts(calls) == ["a", "b", "c", "b", "b", "— a branch —", "x", "b"]


def test_items_in_a_row_are_one_message() -> None:
    """What vLLM gives to its template: a text, thoughts and calls of one turn; tools of a namespace under its name."""
    items = [
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "1", "name": "read", "namespace": "fs", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "*** Begin"},
        {"type": "local_shell_call", "call_id": "3", "action": {"command": ["ls"]}},
        {"type": "custom_tool_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "ok"}]},
        {"type": "item_reference", "id": "x"},
    ]
    offered = [
        {"type": "namespace", "name": "fs", "tools": [{"type": "function", "name": "read", "parameters": {}}]},
        {"type": "custom", "name": "patch", "format": {"type": "text"}},
        {"type": "web_search"},
    ]
    one = packed("responses", {"input": items, "tools": offered}, {"output": []})
    assert texts([one]) == [
        'I look.\nfs__read({})\npatch({"input":"*** Begin"})\nlocal_shell({"command":["ls"]})',
        "ok",
        "",
    ]
    assert set(function_parameters(one) or ()) == {"fs__read", "patch"}
    assert offered_tools(one)[-1] == {"type": "web_search"}


def test_results_beside_a_question_come_before_it() -> None:
    """Anthropic's user message with both; `role: system` within the messages; a picture stays what it is."""
    content = [
        {"type": "text", "text": "And this?"},
        {"type": "tool_result", "tool_use_id": "1", "content": "ok"},
        {"type": "image", "source": {"type": "url", "url": "u"}},
    ]
    listed = [{"role": "user", "content": content}, {"role": "system", "content": "Be brief."}]
    read = messages(packed("messages", {"messages": listed}, {"role": "assistant", "content": "It is."}))
    assert read is not None
    assert [m["role"] for m in read] == ["tool", "user", "system", "assistant"]
    assert orjson.loads(read[1]["content"] or "") == [content[0], content[2]]


def test_a_growing_conversation_is_shown_once() -> None:
    """What a request repeats is not shown again."""
    assert texts([call(["a"], "b"), call(["a", "b", "c"], "d")]) == ["a", "b", "c", "d"]


def test_a_rewritten_history_is_a_branch() -> None:
    """A request that does not continue what was said is marked."""
    assert texts([call(["a"], "b"), call(["a", "x", "c"], "d")]) == ["a", "b", "— a branch —", "x", "c", "d"]


def test_a_body_that_is_no_json_is_left_out() -> None:
    """Garbage in a captured body does not break the reader."""
    assert texts([CallBodies("chat", b"\xff", b"[]"), call(["a"], "b")])[0] == "a"


def test_a_malformed_tool_call_is_shown_as_it_is() -> None:
    """Where a call names no function, it is what it says."""
    reply = {"choices": [{"index": 1, "message": {"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]}}]}
    one = packed("chat", {"messages": []}, reply, 1)
    assert texts([one]) == ['{"id":"x"}']
    assert [m["tool_calls"] for m in messages(one) or ()] == ['[{"id":"x"}]']


NAMES = st.sampled_from(
    ["content", "text", "role", "assistant", "type", "function", "name", "tool_result", "n", "tools"]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | NAMES | st.just(orjson.loads(b"[" * 500 + b"]" * 500)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a body."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


@given(st.data(), st.sampled_from([*FORMATS, "submit_steps"]), st.sampled_from([*CHATS, "completions"]))
def test_whatever_bodies_hold_nothing_is_raised(data: st.DataObject, protocol: str, shape: str) -> None:
    """Values of any type anywhere, keys that are away, another protocol's shape, bytes cut off: text or nothing comes out."""
    parts = [{"whole": body} for body in bodies(shape)]
    for part in parts:
        for container, key in data.draw(st.lists(st.sampled_from(places(part)), max_size=3)):
            container[key] = data.draw(ANYTHING)
    raw = [json.dumps(part["whole"]).encode() for part in parts]
    cut = [body[: data.draw(st.integers(0, len(body)) | st.just(len(body)))] for body in raw]
    one = CallBodies(protocol, cut[0], cut[1], data.draw(st.integers(0, 3)))
    for message in messages(one) or ():
        assert isinstance(message["role"], str)
        assert all(value is None or isinstance(value, str) for value in message.values())
    turns = conversation([one, one, CallBodies(protocol, raw[0], raw[1])])
    assert all(isinstance(turn["content"], str) for turn in turns)
    assert all(isinstance(parameters, dict) for parameters in (function_parameters(one) or {}).values())
    offered = tools(one)
    assert offered is None or isinstance(offered, str)
    event = facts.call(protocol=protocol, response_body=cut[1], choice=one.choice)
    for scorer in SCORERS.values():
        score = scorer.score(Sample(event, lambda: cut[0]))
        assert score is None or 0 <= score <= 1
