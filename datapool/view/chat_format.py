"""Bodies of every protocol in the words of OpenAI's chat: messages, the reply's message, tools. Pure; nothing is raised.

Shapes and order are those in which vLLM 0.32 itself makes a chat of them (`vllm/entrypoints/anthropic/serving.py`,
`openai/responses/utils.py`), so the messages are those that the model's template was given. Bodies are anybody's JSON:
what has another shape is left out. Reasoning is a message's `reasoning`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import orjson

from claw_r1.schemas.json_values import Json, JsonDict

TEXT_PARTS = ("text", "input_text", "output_text", "reasoning_text", "summary_text", "refusal")
ATTRIBUTION = "x-anthropic-billing-header"
"""Begins a system block of Claude Code that changes between calls; the engine leaves it out, too."""
NAMESPACE = "__"
"""Between the namespace of a tool and its name, as the engine joins them."""


class ChatFormat(NamedTuple):
    """The readers of one protocol's bodies; None where a body is not of this protocol, or has no text."""

    request: Callable[[JsonDict, int], list[JsonDict] | None]
    """Messages of a request's body, for that choice of its reply."""
    reply: Callable[[JsonDict, int], JsonDict | None]
    """The assistant's message in a reply's body: of that choice, or of the only one."""
    tools: Callable[[JsonDict], list[JsonDict]]
    """The tools that a request's body offers."""


def objects(value: Json) -> list[JsonDict]:
    """The objects of a list; none of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def plain(content: Json, between: str = "") -> Json:
    """Content in parts as one text, where every part is text; any other as it is."""
    if not isinstance(content, list) or not content:
        return content
    texts = [part.get("refusal") or part.get("text") for part in objects(content) if part.get("type") in TEXT_PARTS]
    strings = [text for text in texts if isinstance(text, str)]
    return between.join(strings) if len(strings) == len(content) else content


def _choice(body: JsonDict, choice: int) -> JsonDict | None:
    choices = objects(body.get("choices"))
    return next((item for item in choices if item.get("index", 0) == choice), choices[0] if choices else None)


def _chat_request(body: JsonDict, _: int) -> list[JsonDict] | None:
    listed = body.get("messages")
    return [_chat_message(message) for message in objects(listed)] if isinstance(listed, list) else None


def _chat_reply(body: JsonDict, choice: int) -> JsonDict | None:
    message = (_choice(body, choice) or {}).get("message")
    return _chat_message(message) if isinstance(message, dict) else None


def _chat_message(message: JsonDict) -> JsonDict:
    return {**message, "content": plain(message.get("content"))}


def _chat_tools(body: JsonDict) -> list[JsonDict]:
    return objects(body.get("tools"))


def _completions_request(body: JsonDict, choice: int) -> list[JsonDict] | None:
    """A prompt that is text, as the user's; of several the one that this choice answers."""
    prompt, number = body.get("prompt"), body.get("n")
    if isinstance(prompt, list):
        index = choice // number if isinstance(number, int) and number > 0 else choice
        prompt = prompt[index] if index < len(prompt) else None
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else None


def _completions_reply(body: JsonDict, choice: int) -> JsonDict | None:
    text = (_choice(body, choice) or {}).get("text")
    return {"role": "assistant", "content": text} if isinstance(text, str) else None


def _generate_reply(body: JsonDict, _: int) -> JsonDict | None:
    text = body.get("text")
    return {"role": "assistant", "content": text} if isinstance(text, str) else None


def _responses_request(body: JsonDict, _: int) -> list[JsonDict] | None:
    instructions, asks = body.get("instructions"), body.get("input")
    if not isinstance(asks, (str, list)):
        return None
    system = [{"role": "system", "content": instructions}] if instructions else []
    return [*system, *([{"role": "user", "content": asks}] if isinstance(asks, str) else _of_items(asks))]


def _responses_reply(body: JsonDict, _: int) -> JsonDict | None:
    output = body.get("output")
    if not isinstance(output, list):
        return None
    message: JsonDict = {"role": "assistant", "content": None}
    for item in _of_items(output):
        message = _joined(message, item) if item["role"] == "assistant" else message
    return message


def _responses_tools(body: JsonDict) -> list[JsonDict]:
    """Functions of a namespace under its name, too; the provider's own tools unchanged."""
    tools: list[JsonDict] = []
    for tool in objects(body.get("tools")):
        inner = objects(tool.get("tools")) if tool.get("type") == "namespace" else [tool]
        space = tool.get("name") if tool.get("type") == "namespace" else None
        tools += [_function(each, each.get("parameters"), space) for each in inner]
    return tools


def _of_items(items: Json) -> list[JsonDict]:
    """Input or output items as messages: consecutive text, thoughts and calls of an assistant are one."""
    messages: list[JsonDict] = []
    for message in filter(None, map(_of_item, objects(items))):
        if messages and message["role"] == messages[-1]["role"] == "assistant":
            messages[-1] = _joined(messages[-1], message)
        else:
            messages.append(message)
    return messages


def _of_item(item: JsonDict) -> JsonDict | None:
    kind = str(item.get("type", "message"))
    if kind == "message":
        return {"role": str(item.get("role", "")), "content": plain(item.get("content"))}
    if kind == "reasoning":
        thought = plain(item.get("content")) or plain(item.get("summary"))
        return {"role": "assistant", "content": None, "reasoning": thought or None}
    if kind.endswith("_call_output"):
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": plain(item.get("output"))}
    return {"role": "assistant", "content": None, "tool_calls": [_item_call(item)]} if kind.endswith("_call") else None


def _item_call(item: JsonDict) -> JsonDict:
    name = _named(item.get("name") or str(item["type"]).removesuffix("_call"), item.get("namespace"))
    if item["type"] == "custom_tool_call":
        arguments: Json = {"input": item.get("input")}
    else:
        arguments = item.get("arguments", item.get("action"))
    return _tool_call(item.get("call_id", item.get("id")), name, arguments)


def _joined(first: JsonDict, second: JsonDict) -> JsonDict:
    """Two messages of an assistant as one."""
    joined = {**first, **{name: value for name, value in second.items() if value is not None}}
    for name in ("content", "reasoning"):
        values = [value for value in (first.get(name), second.get(name)) if value]
        if len(values) > 1:
            texts = all(isinstance(value, str) for value in values)
            joined[name] = "\n".join(values) if texts else [part for value in values for part in _parts(value)]
    calls = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    return {**joined, "tool_calls": calls} if calls else joined


def _parts(content: Json) -> list[Json]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _messages_request(body: JsonDict, _: int) -> list[JsonDict] | None:
    listed, system = body.get("messages"), _unattributed(body.get("system"))
    if not isinstance(listed, list):
        return None
    messages = [{"role": "system", "content": system}] if system else []
    for message in objects(listed):
        role, content = str(message.get("role", "")), message.get("content")
        messages += _of_blocks(role, _unattributed(content) if role == "system" else content)
    return messages


def _messages_reply(body: JsonDict, _: int) -> JsonDict | None:
    if body.get("role") != "assistant":
        return None
    messages = _of_blocks("assistant", body.get("content"))
    return next((message for message in messages if message["role"] == "assistant"), None)


def _messages_tools(body: JsonDict) -> list[JsonDict]:
    return [_function(tool, tool.get("input_schema")) for tool in objects(body.get("tools"))]


def _unattributed(system: Json) -> Json:
    if not isinstance(system, list):
        return None if isinstance(system, str) and system.startswith(ATTRIBUTION) else system
    return plain([block for block in objects(system) if not str(block.get("text")).startswith(ATTRIBUTION)])


def _of_blocks(role: str, content: Json) -> list[JsonDict]:
    """One message of Anthropic's: the results of tools in it as messages of their own, then the rest, if there is any."""
    if not isinstance(content, list):
        return [{"role": role, "content": content}]
    results: list[JsonDict] = []
    calls: list[JsonDict] = []
    thoughts: list[str] = []
    parts: list[JsonDict] = []
    for block in objects(content):
        match block.get("type"):
            case "tool_result":
                text = plain(block.get("content"), "\n")
                results.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text})
            case "tool_use":
                calls.append(_tool_call(block.get("id"), block.get("name"), block.get("input")))
            case "thinking":
                thoughts.append(str(block.get("thinking") or ""))
            case "redacted_thinking":
                pass
            case _:
                parts.append(block)
    message: JsonDict = {"role": role, "content": plain(parts) if parts else None}
    message |= {"reasoning": "".join(thoughts)} if any(thoughts) else {}
    message |= {"tool_calls": calls} if calls else {}
    return [*results, message] if parts or len(message) > 2 or not results else results


def _tool_call(call_id: Json, name: Json, arguments: Json) -> JsonDict:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": as_text(arguments) or "{}"}}


def _function(tool: JsonDict, parameters: Json, space: Json = None) -> JsonDict:
    """A tool with a schema in chat format; one without, which its provider runs, unchanged."""
    if tool.get("type") == "custom":  # a text, which the engine asks for as the one argument of a function
        parameters = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    if not isinstance(parameters, dict):
        return tool
    described = {"description": tool["description"]} if "description" in tool else {}
    function = {"name": _named(tool.get("name"), space), **described, "parameters": parameters}
    return {"type": "function", "function": function}


def _named(name: Json, space: Json) -> Json:
    return f"{space}{NAMESPACE}{name}" if isinstance(space, str) and space else name


def as_text(value: Json) -> str | None:
    """Returns the text, and anything else as JSON text."""
    if value is None or isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # it reads deeper nesting than it writes
        return "(nested too deeply)"


FORMATS: Mapping[str, ChatFormat] = {
    "chat": ChatFormat(_chat_request, _chat_reply, _chat_tools),
    "completions": ChatFormat(_completions_request, _completions_reply, lambda _: []),
    "generate": ChatFormat(lambda *_: None, _generate_reply, lambda _: []),
    "responses": ChatFormat(_responses_request, _responses_reply, _responses_tools),
    "messages": ChatFormat(_messages_request, _messages_reply, _messages_tools),
}
"""By `CallCaptured.protocol`; a call of any other has no bodies that say something."""
