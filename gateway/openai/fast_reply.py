"""An engine's reply with one choice, taken apart without building an object for each of its tokens.

Invariant: what comes out is what a parser would find; whatever does not look as vLLM writes it is left to one. The
three long members are cut out of the bytes, each being there once; then the rest is parsed with null in their places,
so that each of them is known to have stood where it belongs.
"""

from typing import NamedTuple

import msgspec
import orjson

from gateway.engine_json import Json

LOGPROBS, RESPONSE_IDS, PROMPT_IDS = b'"logprobs":{', b',"token_ids":[', b',"prompt_token_ids":['
LOGPROBS_END = b',"finish_reason":'
NULL = b"null"
NULL_IDS = b',"token_ids":null', b',"prompt_token_ids":null'


class _Token(msgspec.Struct, gc=False):
    logprob: float


class _LogProbs(msgspec.Struct, gc=False):
    content: list[_Token]


class _TextLogProbs(msgspec.Struct, gc=False):
    token_logprobs: list[float]


TOKENS = msgspec.json.Decoder(_LogProbs)
TEXT_TOKENS = msgspec.json.Decoder(_TextLogProbs)
IDS = msgspec.json.Decoder(list[int])


class ReplyParts(NamedTuple):
    """A reply in parts. `fields` is all of it, with None for log-probabilities and ids."""

    fields: dict[str, Json]
    pieces: tuple[bytes, bytes, bytes, bytes]
    """Around the three members; these begin with a comma where the client may miss them."""
    members: tuple[bytes, bytes, bytes]
    logprobs: list[float]
    response_ids: list[int]
    prompt_ids: list[int]

    def without(self, *, token_ids: bool, logprobs: bool, nulls: bool = False) -> bytes:
        """The reply without token ids, and with null for log-probabilities, where the flags say so. nulls: and for ids."""
        front, choice, rest, end = self.pieces
        content, response, prompt = self.members
        ids = (NULL_IDS if nulls else (b"", b"")) if token_ids else (response, prompt)
        return b"".join((front, NULL if logprobs else content, choice, ids[0], rest, ids[1], end))


def taken_apart(raw: bytes, *, text: bool = False) -> ReplyParts | None:
    """The parts of a reply as vLLM writes it, to chat or (text) to completions; None for any other."""
    content = raw.find(LOGPROBS) + len(LOGPROBS) - 1
    content_end = raw.rfind(LOGPROBS_END, content)  # what follows it is shorter than what stands before it
    response = raw.find(RESPONSE_IDS, content_end)
    prompt = raw.find(PROMPT_IDS, response)
    if not 0 < content < content_end < response < prompt:
        return None
    response_end, prompt_end = raw.find(b"]", response) + 1, raw.find(b"]", prompt) + 1
    pieces = raw[:content], raw[content_end:response], raw[response_end:prompt], raw[prompt_end:]
    members = raw[content:content_end], raw[response:response_end], raw[prompt:prompt_end]
    try:
        members[0].decode()
        logprobs = _text_logprobs(members[0]) if text else _chat_logprobs(members[0])
        response_ids = IDS.decode(members[1][len(RESPONSE_IDS) - 1 :])
        prompt_ids = IDS.decode(members[2][len(PROMPT_IDS) - 1 :])
        rest = b'%bnull%b,"token_ids":null%b,"prompt_token_ids":null%b' % pieces
        fields = orjson.loads(rest)
    except (ValueError, RecursionError):
        return None
    if not _had_their_places(fields, rest, text):
        return None
    return ReplyParts(fields, pieces, members, logprobs, response_ids, prompt_ids)


def _chat_logprobs(member: bytes) -> list[float]:
    return [token.logprob for token in TOKENS.decode(member).content]


def _text_logprobs(member: bytes) -> list[float]:
    return TEXT_TOKENS.decode(member).token_logprobs


def _had_their_places(fields: Json, rest: bytes, text: bool) -> bool:
    if rest.count(b'"logprobs":') != 1 or rest.count(b'token_ids":') != 2:
        return False
    choices = fields.get("choices", ()) if isinstance(fields, dict) else ()
    if not (isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict)):
        return False
    choice = choices[0]
    prompt = (choice if text else fields).get("prompt_token_ids", 0)
    missing = choice.get("logprobs", 0), choice.get("token_ids", 0), prompt
    return missing == (None, None, None)
