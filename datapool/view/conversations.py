"""The chat messages of captured calls in any protocol. Pure: bodies are bytes.

The one reader of bodies: inspect, export, quality and lineage use it. How each protocol's bodies become OpenAI's chat
is `claw_r1.datapool.view.chat_format`. A request body stands in the log as an edge against an earlier one:
`claw_r1.datapool.delta_decoding.bodies` puts the bodies of a trajectory together,
`claw_r1.datapool.view.request_bodies` those of a running reader of the log.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypedDict

import orjson

from claw_r1.datapool.view.chat_format import FORMATS, as_text
from claw_r1.schemas.events import CallCaptured
from claw_r1.schemas.json_values import Json, JsonDict

BRANCH = "— a branch —"


class CallBodies(NamedTuple):
    """The request and reply of a call, in the protocol's own bytes."""

    protocol: str
    request: bytes
    reply: bytes
    choice: int = 0

    @classmethod
    def of(cls, call: CallCaptured, request: bytes) -> "CallBodies":
        """The bodies of a call with its assembled request; `b""` where it is lost."""
        return cls(call.protocol, request, call.response_body, call.choice)


class Message(TypedDict):
    """A message of OpenAI's chat format; what is no text is JSON text."""

    role: str
    content: str | None
    name: str | None
    tool_calls: str | None
    tool_call_id: str | None
    reasoning: str | None


class ConversationTurn(TypedDict):
    """A message for people: its text, then its tool calls as `name(arguments)`. A branch has no role."""

    role: str
    content: str
    reasoning: str | None


def messages(call: CallBodies) -> list[Message] | None:
    """The messages of one call: those of the request, then the reply's. None where a body has no text.

    A request that names an earlier response instead of repeating it has only its additions.
    """
    question, answer = request_messages(call), reply_message(call)
    return None if question is None or answer is None else [*map(_message, question), _message(answer)]


def request_messages(call: CallBodies) -> list[JsonDict] | None:
    """The messages of the request as chat's objects; None where it has no text."""
    body, form = _parsed(call.request), FORMATS.get(call.protocol)
    return form.request(body, call.choice) if form is not None and body else None


def repeats_history(call: CallBodies) -> bool:
    """Returns whether the request holds the whole conversation before its reply; one that names an earlier response
    does not."""
    return not _parsed(call.request).get("previous_response_id")


def reply_message(call: CallBodies) -> JsonDict | None:
    """The assistant's message as chat has it: of that choice, or of the only one; None where the reply is none."""
    form = FORMATS.get(call.protocol)
    return form.reply(_parsed(call.reply), call.choice) if form is not None else None


def conversation(calls: Iterable[CallBodies]) -> list[ConversationTurn]:
    """The calls of a trajectory as one conversation.

    A request repeats the conversation so far: only its new tail is added, after a branch where it does not continue it.
    Of a call by token ids, only what it answered is text.
    """
    turns: list[ConversationTurn] = []
    responses: dict[str, list[ConversationTurn]] = {}
    text = ""  # that prompts of completions go on from
    for call in calls:
        question, answer = request_messages(call), reply_message(call)
        added = [turn_of(message) for message in question or ()]
        reply = [turn_of(answer)] if answer is not None else []
        if call.protocol == "responses":
            added = _in_full(_parsed(call.request), added, responses)
            responses[str(_parsed(call.reply).get("id"))] = [*added, *reply]
        elif call.protocol == "completions" and question is not None:
            prompt = question[0]["content"]
            if text and prompt.startswith(text):
                added = [
                    *turns,
                    *([turn_of({"role": "user", "content": prompt[len(text) :]})] if prompt != text else []),
                ]
            text = prompt + (answer or {}).get("content", "")
        common = _common(turns, added)
        if common < len(turns) and question is not None:
            turns.append(ConversationTurn(role="", content=BRANCH, reasoning=None))
        turns += [*added[common:], *reply]
    return turns


def tools(call: CallBodies) -> str | None:
    """The tools that the model was offered, in chat's format, as JSON text."""
    return as_text(offered_tools(call) or None)


def offered_tools(call: CallBodies) -> list[JsonDict]:
    """The tools that the model was offered, in chat's format."""
    form = FORMATS.get(call.protocol)
    return form.tools(_parsed(call.request)) if form is not None else []


def function_parameters(call: CallBodies) -> dict[str, JsonDict] | None:
    """JSON schema of the parameters by name of the offered functions; None where the body is unreadable."""
    if not _parsed(call.request):
        return None
    functions = [tool.get("function") for tool in offered_tools(call)]
    return {
        function["name"]: parameters if isinstance(parameters := function.get("parameters"), dict) else {}
        for function in functions
        if isinstance(function, dict) and isinstance(function.get("name"), str)
    }


def _in_full(
    request: JsonDict, added: list[ConversationTurn], responses: dict[str, list[ConversationTurn]]
) -> list[ConversationTurn]:
    """A request that names the response it continues, with the messages before it; instructions are its own."""
    previous = request.get("previous_response_id")
    before = responses.get(previous, []) if isinstance(previous, str) else []
    own = 1 if before and request.get("instructions") else 0
    return [*added[:own], *(turn for turn in before if turn["role"] != "system"), *added[own:]]


def _message(message: JsonDict) -> Message:
    return Message(
        role=str(message.get("role", "")),
        content=as_text(message.get("content")),
        name=as_text(message.get("name")),
        tool_calls=as_text(message.get("tool_calls") or None),
        tool_call_id=as_text(message.get("tool_call_id")),
        reasoning=as_text(message.get("reasoning") or message.get("reasoning_content") or None),
    )


def turn_of(message: JsonDict) -> ConversationTurn:
    """A message of chat's format for people."""
    plain, calls = _message(message), message.get("tool_calls")
    texts = [plain["content"], *map(_call_text, calls if isinstance(calls, list) else ())]
    return ConversationTurn(role=plain["role"], content="\n".join(filter(None, texts)), reasoning=plain["reasoning"])


def _call_text(call: Json) -> str | None:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return as_text(call)
    arguments = function.get("arguments")
    with suppress(orjson.JSONDecodeError, TypeError):  # clients write the same arguments with other spaces
        arguments = orjson.loads(arguments or b"")
    return f"{function['name']}({as_text(arguments) or ''})"


def _common(turns: Sequence[ConversationTurn], added: Sequence[ConversationTurn]) -> int:
    """Returns how many turns both begin with; reasoning does not count, since many clients do not send it back."""
    pairs = zip(turns, added, strict=False)
    differing = (
        at for at, (turn, new) in enumerate(pairs) if (turn["role"], turn["content"]) != (new["role"], new["content"])
    )
    return next(differing, min(len(turns), len(added)))


def _parsed(body: bytes) -> JsonDict:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
