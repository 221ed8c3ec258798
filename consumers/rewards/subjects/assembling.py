"""Captured calls as a scorer sees them. Pure: bodies are bytes in any protocol."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec.structs import replace

from claw_r1.consumers.rewards.judged import JudgedCall, JudgedMessage
from claw_r1.consumers.rewards.subjects.subject import Unjudgeable
from claw_r1.datapool.batch.anchor_states import parents
from claw_r1.datapool.fold.state import StepState
from claw_r1.datapool.fold.step import captured, kind_of, stated_kind
from claw_r1.datapool.view.conversations import (
    CallBodies,
    offered_tools,
    repeats_history,
    reply_message,
    request_messages,
)
from claw_r1.schemas.arrays import unpack_floats
from claw_r1.schemas.events import CallCaptured, FactPosition
from claw_r1.schemas.http import CallKind, Channel

WORDLESS = ("generate", "submit_steps")
"""Protocols whose requests are token ids."""
NOWHERE = FactPosition(topic="", partition=0, offset=0)


def counts(call: CallCaptured, *, in_use: bool) -> bool:
    """Returns whether a call is part of what is judged: completed, of the agent for its task, and no judge's own.

    in_use: `step.tools_in_use` of its trajectory, as far as its calls are known.
    """
    kind = kind_of(stated_kind(call), has_tools=call.has_tools, in_use=in_use)
    return call.status == "completed" and kind != CallKind.SIDE and call.channel != Channel.JUDGE


def judged_call(
    call: CallCaptured,
    request: bytes | None,
    *,
    bytes_max: int,
    pure: bool = True,
    before: Sequence[JudgedMessage] | None = None,
) -> JudgedCall:
    """One call without its successors. Raises Unjudgeable.

    request: its whole body; None where it is lost. before: the earlier conversation, if the request names a response
    instead of repeating it.
    """
    if request is None:
        raise Unjudgeable("text_lost", f"call {call.call_id}: an earlier call that its request goes on from is lost")
    if len(request) + len(call.response_body) > bytes_max:
        size = len(request) + len(call.response_body)
        raise Unjudgeable("too_large", f"call {call.call_id}: {size} bytes, and at most {bytes_max} are judged")
    bodies = CallBodies.of(call, request)
    question, reply = request_messages(bodies), reply_message(bodies)
    if question is None and call.protocol not in WORDLESS:
        reason = "text_lost" if not request else "unreadable"
        raise Unjudgeable(reason, f"call {call.call_id}: its request holds no {call.protocol} request that can be read")
    if question is None and reply is None:
        raise Unjudgeable("no_text", f"call {call.call_id}: neither request nor reply says anything in words")
    if not repeats_history(bodies):
        if before is None:
            raise Unjudgeable(
                "text_lost", f"call {call.call_id}: the response that its request goes on from is not there"
            )
        question = [*before, *(question or ())]
    return JudgedCall(
        call_id=call.call_id,
        messages=tuple(question or ()),
        reply=reply,
        tools=tuple(offered_tools(bodies)),
        finish_reason=call.finish_reason,
        tags=call.tags,
        logprob_mean=None if pure else _mean(call.response_logprobs),
    )


def judged_calls(
    calls: Sequence[CallCaptured],
    requests: Mapping[str, bytes],
    after: Mapping[str, str],
    *,
    bytes_max: int,
    pure: bool,
) -> dict[str, JudgedCall]:
    """Calls of a trajectory by id, with their successors. calls: in order; after: `successors`. Raises Unjudgeable."""
    judged: dict[str, JudgedCall] = {}
    responses: dict[str, list[JudgedMessage]] = {}
    for call in calls:
        before = responses.get(_word(requests.get(call.call_id), "previous_response_id", call.protocol))
        one = judged_call(call, requests.get(call.call_id), bytes_max=bytes_max, pure=pure, before=before)
        judged[call.call_id] = one
        responses[_word(call.response_body, "id", call.protocol)] = said(one)
    for call_id, next_id in after.items():
        if call_id in judged and next_id in judged:
            judged[call_id] = replace(judged[call_id], after=tuple(added(judged[call_id], judged[next_id].messages)))
    return judged


def successors(calls: Sequence[CallCaptured]) -> dict[str, str]:
    """Call -> the call that goes on with it, of those in `calls`."""
    steps = [captured(StepState(), call, NOWHERE).capture for call in calls]
    return {base: call_id for call_id, base in parents([step for step in steps if step is not None]).items()}


def main_line(calls: Sequence[CallCaptured], after: Mapping[str, str]) -> list[str]:
    """Ids of the line that the first call begins. calls: in order; after: their `successors`."""
    line = [call.call_id for call in calls[:1]]
    while line and (next_id := after.get(line[-1])) is not None and next_id not in line:
        line.append(next_id)
    return line


def said(call: JudgedCall) -> list[JudgedMessage]:
    """The conversation up to and with the reply."""
    return [*call.messages, *([call.reply] if call.reply is not None else [])]


def added(call: JudgedCall, later: Sequence[JudgedMessage]) -> Sequence[JudgedMessage]:
    """Returns the messages of a later request after the call's reply; clients send replies back in a form of their own."""
    at = len(call.messages) + 1
    if [message.get("role") for message in later[: at - 1]] == [message.get("role") for message in call.messages]:
        return later[at:]
    last = max((at for at, message in enumerate(later) if message.get("role") == "assistant"), default=-1)
    return later[last + 1 :]


def parsed_json(text: str | None) -> Any:  # JSON of the agent's author
    """JSON that a registration carries; the text itself where it is none."""
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _word(body: bytes | None, field: str, protocol: str) -> str:
    """A text of a responses body; empty where there is none."""
    if protocol != "responses" or not body:
        return ""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    word = parsed.get(field) if isinstance(parsed, dict) else None
    return word if isinstance(word, str) else ""


def _mean(packed: bytes) -> float | None:
    finite = [value for value in unpack_floats(packed[: len(packed) // 4 * 4]) if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else None
