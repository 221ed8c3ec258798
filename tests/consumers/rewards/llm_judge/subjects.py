"""Subjects to judge."""

from claw_r1.consumers.rewards.judged import Judged, JudgedCall, JudgedMessage


def says(content: str, role: str = "assistant") -> JudgedMessage:
    return {"role": role, "content": content}


def call(
    reply: str | None, *before: JudgedMessage, after: tuple[JudgedMessage, ...] | None = None, call_id: str = "c"
) -> JudgedCall:
    answer = None if reply is None else says(reply)
    return JudgedCall(call_id=call_id, messages=before or (says("find c", "user"),), reply=answer, after=after)


def subject(reply: str | None = "get c", scope: str = "call", trajectory_id: str = "t") -> Judged:
    """Of a scope other than group."""
    one = call(reply, after=(says("c=7", "tool"),))
    talk = (*one.messages, *([one.reply] if one.reply else []))
    return Judged(scope=scope, group_id="g", trajectory_id=trajectory_id, calls=(one,), conversation=talk)  # type: ignore[arg-type]  # a wrong or a partial argument is the case


def group(*replies: str) -> Judged:
    """A member per reply."""
    members = tuple(subject(reply, "trajectory", f"t{number}") for number, reply in enumerate(replies))
    return Judged(scope="group", group_id="g", members=members)
