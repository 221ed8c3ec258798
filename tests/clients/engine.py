"""An engine for real clients: it calls the client's own shell twice, then says that it is done. Chat, responses and messages."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.gateway.engine import Received, Reply, answer, chunk
from tests.gateway.packed import comment

Json = dict[str, Any]
SHELL = re.compile(r"(?i)bash|shell|shell_command|exec|exec_command")
TURNS = 2
DONE = "All done."


def work(received: Received) -> Reply:
    """What the client's model would say next; a call without a shell is a side call, and gets words."""
    path = received.path.split("?")[0]
    asked = received.json if received.body else {}
    if path.endswith("/count_tokens"):
        return Reply({"input_tokens": 7})
    if path.endswith("/responses"):
        return Reply(pieces=tuple(_responses(asked)))
    if path.endswith("/messages"):
        return Reply(pieces=tuple(_messages(asked)))
    if path.endswith("/chat/completions") and asked.get("stream"):
        return Reply(pieces=tuple(_chat(asked)))
    return answer(received)


def _next_call(asked: Json) -> tuple[str, str] | None:
    """(name of the client's shell, arguments as JSON); None where it has none, or has used it often enough."""
    results = sum(text in json.dumps(asked) for text in [f"turn-{n}" for n in range(TURNS)])
    for tool in asked.get("tools") or ():
        function = tool.get("function") or tool
        if SHELL.fullmatch(function.get("name") or "") and results < TURNS:
            schema = function.get("parameters") or function.get("input_schema")
            command = f"echo turn-{results}"
            values: Json = dict.fromkeys(schema.get("required") or (), "x")
            name = "cmd" if "cmd" in schema["properties"] else "command"
            listed = schema["properties"][name].get("type") == "array"
            values[name] = ["sh", "-c", command] if listed else command
            return function["name"], json.dumps(values)
    return None


def _chat(asked: Json) -> Iterator[bytes]:
    yield chunk(asked=asked, delta={"role": "assistant", "content": ""})
    if (call := _next_call(asked)) is not None:
        function = {"name": call[0], "arguments": call[1]}
        calls = [{"index": 0, "id": f"call_{len(asked['messages'])}", "type": "function", "function": function}]
        yield chunk(asked=asked, delta={"tool_calls": calls}, finish_reason="tool_calls")
    else:
        yield chunk(DONE, asked=asked, finish_reason="stop")
    yield _data({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny", "choices": [],
                 "usage": {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}})  # fmt: skip
    yield comment()
    yield b"data: [DONE]\n\n"


def _messages(asked: Json) -> Iterator[bytes]:
    call = _next_call(asked)
    usage = {"input_tokens": 4, "output_tokens": 0}
    # An id of its own: Claude Code takes messages of one id for parts of one.
    message = {"id": f"msg_{len(asked['messages'])}", "type": "message", "role": "assistant", "model": asked["model"], "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    yield _event({"type": "message_start", "message": message})
    block: Json = {"type": "text", "text": ""}
    delta: Json = {"type": "text_delta", "text": DONE}
    if call is not None:
        block = {"type": "tool_use", "id": f"call_{len(asked['messages'])}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": call[1]}
    yield _event({"type": "content_block_start", "index": 0, "content_block": block})
    yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _event({"type": "content_block_stop", "index": 0})
    stop = {"stop_reason": "end_turn" if call is None else "tool_use", "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": stop, "usage": {"input_tokens": 4, "output_tokens": 2}})
    yield _event({"type": "message_stop"})


def _responses(asked: Json) -> Iterator[bytes]:
    call, number = _next_call(asked), len(asked["input"])
    item: Json = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed",
                  "content": [{"type": "output_text", "text": DONE, "annotations": [], "logprobs": None}]}  # fmt: skip
    if call is not None:
        item = {"id": f"fc_{number}", "type": "function_call", "status": "completed", "call_id": f"call_{number}",
                "name": call[0], "arguments": call[1]}  # fmt: skip
    response: Json = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": asked["model"], "output": [],
                      "status": "in_progress", "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}  # fmt: skip
    usage = {"input_tokens": 4, "output_tokens": 2, "total_tokens": 6, "input_tokens_details": {"cached_tokens": 0},
             "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    events: list[Json] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [item], "usage": usage},
        },
    ]
    yield from (_event({**event, "sequence_number": place}) for place, event in enumerate(events))


def _event(event: Json) -> bytes:
    return b"event: " + event["type"].encode() + b"\n" + _data(event)


def _data(event: Json) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"
