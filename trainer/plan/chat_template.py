"""Ids of calls whose server gave none (`policy: any`): their messages, rendered by the chat template of the model under training.

The result guesses token boundaries and does not show which policy sampled: it can be imitated, but
has no ratio. Deterministic, so a replay repeats it.
"""

from pathlib import Path
from typing import Any

import orjson

from claw_r1.datapool.errors import NotRenderable
from claw_r1.datapool.view.conversations import (
    CallBodies,
    offered_tools,
    repeats_history,
    reply_message,
    request_messages,
)
from claw_r1.datapool.view.planned_rows import RenderedCall
from claw_r1.schemas.arrays import pack_ids
from claw_r1.schemas.json_values import Json


class ChatTemplate:
    """A `Renderer`. The tokenizer is loaded when the first call asks for it."""

    def __init__(self, model_dir: Path) -> None:
        self._model_dir = model_dir
        self._tokenizer: Any = None  # Any: transformers is untyped here

    def __call__(self, call: CallBodies) -> RenderedCall:
        """The prompt is the template's text for the request's messages, the response its addition for the reply's."""
        question, answer = request_messages(call), reply_message(call)
        if answer is None or question is None or call.protocol == "completions":  # whose prompt no template wrote
            raise NotRenderable("request or reply is no chat")
        if not repeats_history(call):
            raise NotRenderable("the request names an earlier response instead of repeating it")
        return self._rendered([_plain(message) for message in question], _plain(answer), offered_tools(call) or None)

    def _rendered(self, question: list[Json], answer: Json, tools: Json) -> RenderedCall:
        tokenizer = self._loaded()
        try:
            prompt = tokenizer.apply_chat_template(question, tools=tools, add_generation_prompt=True, tokenize=False)
            whole = tokenizer.apply_chat_template([*question, answer], tools=tools, tokenize=False)
        except Exception as error:  # a template is a program of the model's, and raises whatever it likes
            raise NotRenderable(f"the template refuses it: {type(error).__name__}: {error}") from error
        if not whole.startswith(prompt):
            raise NotRenderable("the template renders the prompt otherwise once the reply follows")
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, whole[len(prompt) :])]
        return RenderedCall(pack_ids(ids[0]), pack_ids(_to_its_end(ids[1], tokenizer.eos_token_id)))

    def _loaded(self) -> Any:  # Any: as above
        if self._tokenizer is None:
            from transformers import AutoTokenizer

            try:
                self._tokenizer = AutoTokenizer.from_pretrained(self._model_dir)
            except (OSError, ValueError) as error:
                raise NotRenderable(f"{self._model_dir} has no tokenizer: {error}") from error
            if not self._tokenizer.chat_template:
                raise NotRenderable(f"the tokenizer of {self._model_dir} has no chat template")
        return self._tokenizer


def _to_its_end(response: list[int], end: int | None) -> list[int]:
    """Up to its last end token: what a template writes behind it, no model samples."""
    return response[: len(response) - response[::-1].index(end)] if end in response else response


def _plain(message: Json) -> Json:
    """A message as templates take it: arguments of tools as objects."""
    content, calls = message.get("content"), message.get("tool_calls")
    if content and not isinstance(content, str):
        raise NotRenderable("a message holds more than text")
    calls = [_tool_call(call) for call in calls] if isinstance(calls, list) else []
    return {**message, "content": content or "", **({"tool_calls": calls} if calls else {})}


def _tool_call(call: Json) -> Json:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        return {**call, "function": {**function, "arguments": orjson.loads(function["arguments"] or "{}")}}
    except orjson.JSONDecodeError as error:
        raise NotRenderable(f"the arguments of a tool are no JSON: {error}") from error
