"""OpenAI's completions as vLLM serves them: one prompt, as token ids or as text, and its choices.

Invariant: what the client gets is what vLLM would have sent it, byte for byte: where it asked for neither ids nor
log-probabilities, vLLM names them all the same, as null, and so they are here.
"""

from typing import Any

from gateway.call_protocol import CallRequest, EngineReply
from gateway.engine_json import Json
from gateway.errors import InvalidRequest, error_body
from gateway.openai.accumulator import Accumulator, ChoiceAccumulator
from gateway.openai.chat import error_message
from gateway.openai.fast_reply import taken_apart
from gateway.openai.reply import PROMPT, completion, understood, without_added
from gateway.openai.request import LOGPROBS, TOKEN_IDS, call_request, json_object
from gateway.openai.sampling import effective
from gateway.openai.stream_filter import StreamFilter
from gateway.openai.tokens import SampledTokens, packed_ids, packed_integers, packed_logprobs
from gateway.openai.version_spans import parse_header
from gateway.upstream.pool import UpstreamReply
from schemas.http import VERSION_SPANS_HEADER

TOKENS_DEFAULT = 16
"""Tokens of a response to which the request sets no limit."""
SINGLE_PROMPT = "prompt must be one text, or one list of token ids, that is not empty"
REFUSED = ("echo", "suffix", "prompt_embeds")
"""Fields by which a prompt is more, or other, than the ids that the response was sampled after."""


def parse_completion(body: bytes) -> CallRequest:
    """Parse the body of a completions request. Raises InvalidRequest with the field at fault."""
    fields = json_object(body)
    if not _is_single(fields.get("prompt")):
        raise InvalidRequest(SINGLE_PROMPT, param="prompt")
    for name in REFUSED:
        if fields.get(name):
            raise InvalidRequest(f"{name} is not served here: {SINGLE_PROMPT}", param=name)
    if fields.get("best_of") not in (None, 1):
        raise InvalidRequest("best_of is not served here: n gives all choices", param="best_of")
    # 0 log-probabilities: of no alternatives; that of the sampled token is there all the same.
    added: dict[str, int] = {} if fields.get(LOGPROBS) is not None else {LOGPROBS: 0}
    added |= {} if fields.get(TOKEN_IDS) else {TOKEN_IDS: True}
    return call_request(body, fields, added, effective(fields, limits=("max_tokens",), limit_default=TOKENS_DEFAULT))


def _is_single(prompt: Any) -> bool:
    # Any: the client's. That all ids are some is for the engine to see, which knows its vocabulary, too.
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]  # of one prompt
    return bool(prompt) and (isinstance(prompt, str) or (isinstance(prompt, list) and type(prompt[0]) is int))


def parse_reply(reply: UpstreamReply, request: CallRequest) -> EngineReply:
    """Read a 200 of an engine. Raises UpstreamBroken when it is no completion with choices, or nested too deeply."""
    spans = parse_header(reply.headers.get(VERSION_SPANS_HEADER))
    parts = taken_apart(reply.body, text=True)
    if parts is not None:
        body = parts.without(token_ids=TOKEN_IDS in request.added, logprobs=LOGPROBS in request.added, nulls=True)
        sampled = SampledTokens(packed_integers(parts.response_ids), packed_logprobs(parts.logprobs))
        return understood(parts.fields, packed_integers(parts.prompt_ids), [sampled], spans, request, body)
    fields = completion(reply.body)
    choices = fields["choices"]
    tokens = [
        SampledTokens(packed_ids(choice.get("token_ids")), packed_logprobs(_logprobs(choice).get("token_logprobs")))
        for choice in choices
    ]
    whole = without_added(reply.body, request, nulls=True)
    return understood(fields, packed_ids(choices[0].get(PROMPT)), tokens, spans, request, whole)


class TextCompletions:
    """`POST /v1/completions`, a `CallProtocol`."""

    name = "completions"
    path = "/v1/completions"
    stream_type = "text/event-stream"
    parse = staticmethod(parse_completion)
    parse_reply = staticmethod(parse_reply)
    error = staticmethod(error_body)
    error_message = staticmethod(error_message)

    def open_stream(self, request: CallRequest) -> "CompletionStream":
        """As `CallProtocol.open_stream`."""
        return CompletionStream(request)


class CompletionAccumulator(Accumulator):
    """Chunks that name the prompt's ids in their choices."""

    kind = "text_completion"

    def _add_chunk(self, chunk: dict[str, Json]) -> None:
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get(PROMPT) is not None:
                self._prompt_ids = self._prompt_ids or packed_ids(choice[PROMPT])
                if TOKEN_IDS in self._request.added:
                    choice[PROMPT] = None  # the client gets none, so none are kept
        super()._add_chunk(chunk)

    def new_choice(self, index: int, *, keep_logprobs: bool) -> ChoiceAccumulator:
        return _CompletionChoice(index, keep_logprobs=keep_logprobs)


class _CompletionChoice(ChoiceAccumulator):
    """One choice: text, and log-probabilities as lists that grow side by side."""

    def __init__(self, index: int, *, keep_logprobs: bool) -> None:
        super().__init__(index, keep_logprobs=False)
        self._lists: dict[str, list[Json]] | None = {} if keep_logprobs else None
        self._texts: list[str] = []

    def add(self, choice: dict[str, Json]) -> None:
        text, logprobs = choice.get("text"), _logprobs(choice)
        if isinstance(text, str):
            self._texts.append(text)
        lists = {name: values for name, values in logprobs.items() if isinstance(values, list)}
        self._add_tokens(choice.get("token_ids"), lists.get("token_logprobs", []), has_output=bool(text))
        if self._lists is not None:
            for name, values in lists.items():
                self._lists.setdefault(name, []).extend(values)
        for name, value in choice.items():
            if value is not None and name not in ("text", "logprobs", "token_ids"):
                self._fields[name] = value

    def answer(self) -> dict[str, Json]:
        fields = super().answer()
        del fields["message"]
        return {PROMPT: None, **fields, "text": "".join(self._texts), "logprobs": self._lists or None}


class CompletionStream(StreamFilter):
    """One stream (a `ReplyStream`)."""

    accumulator = CompletionAccumulator
    nulls = True


def _logprobs(choice: dict[str, Json]) -> dict[str, Json]:
    logprobs = choice.get("logprobs")
    return logprobs if isinstance(logprobs, dict) else {}
