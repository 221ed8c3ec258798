"""A pair as a row of `pairs.parquet`: the common prompt and both replies, as chat messages. Pure.

Two calls with equal prompts are a pair. Trajectories share the start of their conversations up to the assistant turn
at which they differ: that is their prompt, and all that follows, including tool results, is chosen or rejected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from claw_r1.consumers.export.choose import Chosen
from claw_r1.consumers.export.pairs import Pair
from claw_r1.consumers.export.rows import ExportedRow
from claw_r1.datapool.batch.masks import is_imitable
from claw_r1.datapool.delta_decoding import bodies, prompts
from claw_r1.datapool.feedback import FeedbackSubject
from claw_r1.datapool.view.chat_format import as_text, objects
from claw_r1.datapool.view.conversations import (
    CallBodies,
    offered_tools,
    repeats_history,
    reply_message,
    request_messages,
)
from claw_r1.schemas.events import CallCaptured, StepRecord
from claw_r1.schemas.http import CallKind, kind_tag, version_label

ASIDE = {kind_tag(CallKind.SIDE), kind_tag(CallKind.SUBAGENT)}
Messages = list[ExportedRow]


@dataclass(frozen=True, slots=True)
class PairedAnswer:
    """The prompt and reply of one side of a pair."""

    prompt: Messages
    reply: Messages
    tools: str | None
    prompt_ids: bytes | None
    reply_ids: bytes | None


class PairedEpisode:
    """A trajectory with its captured calls, whose texts and tokens are assembled on demand."""

    def __init__(self, chosen: Chosen, calls: Mapping[str, CallCaptured], *, any_policy: bool = False) -> None:
        """any_policy: calls of which only the text can be imitated count, too."""
        self.chosen, self.calls = chosen, calls
        self.steps: dict[str, StepRecord] = {step.call_id: step for step in chosen.steps}
        imitable = [step.call_id for step in chosen.steps if any_policy and is_imitable(step)]
        self.trained = chosen.trained.union(imitable)

    @cached_property
    def _requests(self) -> dict[str, bytes]:
        return bodies(self.calls)

    @cached_property
    def _prompts(self) -> dict[str, bytes]:
        return prompts(self.calls)

    def answer(self, call_id: str) -> PairedAnswer | None:
        """Returns the reply of one call with its prompt; None where a body has no text."""
        call = self.calls.get(call_id)
        if call is None:
            return None
        texts = CallBodies.of(call, self._requests.get(call_id, b""))
        question, reply = request_messages(texts), reply_message(texts)
        if not question or reply is None or not repeats_history(texts):
            return None
        tools = as_text(offered_tools(texts) or None)
        return PairedAnswer(
            [*map(message, question)], [message(reply)], tools, self._prompts.get(call_id), call.response_ids or None
        )

    def whole(self) -> PairedAnswer | None:
        """The trajectory as its last call of the agent itself tells it."""
        own = self.own()
        return self.answer(own[-1].call_id) if own else None

    def own(self) -> list[StepRecord]:
        """Steps of the agent itself, in order."""
        return [step for step in self.chosen.steps if not ASIDE & set(step.tags)]

    def prompt_of(self, front: Messages) -> bytes | None:
        """The exact ids of the call that was asked just that."""
        for step in self.chosen.steps:
            answer = self.answer(step.call_id)
            if answer is not None and same(answer.prompt, front):
                return answer.prompt_ids
        return None


Episodes = Mapping[str, PairedEpisode]
"""The episodes of a group, by trajectory_id."""


def pair_row(pair: Pair, episodes: Episodes) -> ExportedRow | str:
    """The row, or why there is none."""
    sides = [episodes.get(subject.trajectory_id) for subject in (pair.chosen, pair.rejected)]
    if sides[0] is None or sides[1] is None:
        return "unknown_subject"
    if any(
        side is not None and one.call_id not in (None, *side.steps)
        for side, one in zip(sides, (pair.chosen, pair.rejected), strict=True)
    ):
        return "unknown_subject"
    if not _may_be_chosen(pair, sides[0]):
        return "not_trainable"
    answers = _answers(pair, sides[0], sides[1])
    if isinstance(answers, str):
        return answers
    chosen, rejected = answers
    if same(chosen.reply, rejected.reply):
        return "same_reply"
    record, group = sides[0].chosen.record, sides[0].chosen.group
    return {
        "group_id": record.group_id,
        "source": pair.source,
        "name": pair.name,
        "who": list(pair.who),
        "prompt": chosen.prompt,
        "chosen": chosen.reply,
        "rejected": rejected.reply,
        "tools": chosen.tools,
        "prompt_ids": chosen.prompt_ids if chosen.prompt_ids == rejected.prompt_ids else None,
        "chosen_ids": chosen.reply_ids,
        "rejected_ids": rejected.reply_ids,
        "margin": pair.margin,
        **_side("chosen", pair.chosen, sides[0], sampled=pair.edit is None),
        **_side("rejected", pair.rejected, sides[1], sampled=True),
        "event_ids": list(pair.event_ids),
        "channel": record.channel,
        "agent": record.agent,
        "task": group.task if record.task is None else record.task,
    }


def _may_be_chosen(pair: Pair, episode: PairedEpisode) -> bool:
    """Not curated as untrainable, and partly trained; a person's edit in its place need not be."""
    steps = episode.own() if pair.chosen.call_id is None else [episode.steps[pair.chosen.call_id]]
    if any(step.curation is not None and step.curation.trainable is False for step in steps):
        return False
    return pair.edit is not None or any(step.call_id in episode.trained for step in steps)


def _answers(pair: Pair, first: PairedEpisode, second: PairedEpisode) -> tuple[PairedAnswer, PairedAnswer] | str:
    if pair.chosen.call_id is None or pair.rejected.call_id is None:
        return _parting(first, second)
    chosen, rejected = first.answer(pair.chosen.call_id), second.answer(pair.rejected.call_id)
    if chosen is None or rejected is None:
        return "no_words"
    if pair.edit is not None:
        return PairedAnswer(chosen.prompt, [message(pair.edit)], chosen.tools, chosen.prompt_ids, None), rejected
    equal_ids = first.steps[pair.chosen.call_id].prompt_id == second.steps[pair.rejected.call_id].prompt_id
    if chosen.tools != rejected.tools or not (
        same(chosen.prompt, rejected.prompt) or (equal_ids and chosen.prompt_ids)
    ):
        return "prompts_differ"
    return chosen, rejected


def _parting(first: PairedEpisode, second: PairedEpisode) -> tuple[PairedAnswer, PairedAnswer] | str:
    """Two trajectories from the assistant's turn on at which they part."""
    chosen, rejected = first.whole(), second.whole()
    if chosen is None or rejected is None:
        return "no_words"
    left, right = [*chosen.prompt, *chosen.reply], [*rejected.prompt, *rejected.reply]
    at = next(
        (n for n, two in enumerate(zip(left, right, strict=False)) if not same(two[:1], two[1:])),
        min(len(left), len(right)),
    )
    while at and not (_speaks(left, at) and _speaks(right, at)):
        at -= 1
    if at == 0 or chosen.tools != rejected.tools:
        return "prompts_differ"
    front = left[:at]
    prompt_ids = first.prompt_of(front)
    if prompt_ids is None or prompt_ids != second.prompt_of(front):
        prompt_ids = None
    ids = [_after(prompt_ids, answer) for answer in (chosen, rejected)]
    return (
        PairedAnswer(front, left[at:], chosen.tools, prompt_ids, ids[0]),
        PairedAnswer(front, right[at:], rejected.tools, prompt_ids, ids[1]),
    )


def _speaks(messages: Messages, at: int) -> bool:
    return at < len(messages) and messages[at]["role"] == "assistant"


def _after(prompt_ids: bytes | None, answer: PairedAnswer) -> bytes | None:
    """The ids of a conversation after its prompt; null where a part is not known exactly, or was rewritten."""
    if prompt_ids is None or answer.prompt_ids is None or answer.reply_ids is None:
        return None
    whole = answer.prompt_ids + answer.reply_ids
    return whole[len(prompt_ids) :] if whole.startswith(prompt_ids) else None


def _side(which: str, subject: FeedbackSubject, episode: PairedEpisode, *, sampled: bool) -> ExportedRow:
    steps = episode.chosen.steps if subject.call_id is None else (episode.steps[subject.call_id],)
    spans = [version_label(span.run_id, span.version) for step in steps for span in step.spans]
    earned = episode.chosen.earned if subject.call_id is None else steps[0].reward_total
    return {
        f"{which}_trajectory_id": subject.trajectory_id,
        f"{which}_call_id": subject.call_id,
        f"{which}_versions": list(dict.fromkeys(spans)) if sampled else [],
        f"{which}_reward": earned if sampled else None,
    }


def message(own: Mapping[str, Any]) -> ExportedRow:
    """A message as chat templates take it; what is no text as JSON text, as in `steps.parquet`."""
    calls = [_tool_call(call) for call in objects(own.get("tool_calls"))]
    return {
        "role": str(own.get("role", "")),
        "content": as_text(own.get("content")),
        "name": as_text(own.get("name")),
        "tool_calls": calls or None,
        "tool_call_id": as_text(own.get("tool_call_id")),
        "reasoning_content": as_text(own.get("reasoning") or own.get("reasoning_content") or None),
    }


def _tool_call(call: Mapping[str, Any]) -> ExportedRow:
    function = call.get("function")
    named = function if isinstance(function, dict) else {}
    return {
        "id": as_text(call.get("id")),
        "type": as_text(call.get("type", "function")),
        "function": {"name": as_text(named.get("name")), "arguments": as_text(named.get("arguments"))},
    }


def same(left: Sequence[ExportedRow], right: Sequence[ExportedRow]) -> bool:
    """Returns whether two lists of messages have the same content; reasoning and ids do not count, since many clients
    do not send them back."""
    return [_content(one) for one in left] == [_content(one) for one in right]


def _content(one: ExportedRow) -> Any:  # what is compared
    calls = [(call["function"]["name"], _arguments(call["function"]["arguments"])) for call in one["tool_calls"] or ()]
    return one["role"], one["content"] or "", calls


def _arguments(text: str | None) -> Any:  # any JSON value
    try:
        return orjson.loads(text or "")
    except orjson.JSONDecodeError:
        return text
