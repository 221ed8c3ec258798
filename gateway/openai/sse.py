"""Server-sent events as bytes: cut into events, and freed of the fields that only capture asked for.

Invariant: what is forwarded is what the engine sent, byte for byte; only whole members of JSON objects are cut out, so
no number, escape or space is written anew. An event is looked at only when it is there to its blank line, so it does
not matter where the network cut it, be it inside a character.
"""

import re
from collections.abc import Iterator

from claw_r1.schemas.http import VERSION_SPANS_COMMENT

COMMENT = VERSION_SPANS_COMMENT.encode()
DONE = b"[DONE]"
# Possessive and atomic throughout: a hostile body costs time linear in its length. Deeper values than this do not match.
DEPTH_MAX = 16
STRING = rb'"(?:[^"\\]++|\\.)*+"'
LINE_END = rb"(?>\r\n|\n|\r)"
COMMENT_LINE = re.compile(rb"(?m:^)" + re.escape(COMMENT) + rb"([^\r\n]*+)" + LINE_END)


def _value(depth: int) -> bytes:
    nested = rb"|[\[{](?:" + _value(depth - 1) + rb")*+[\]}]" if depth else b""
    return rb'[^"\[\]{}]++|' + STRING + nested


VALUE = rb'(?>"(?:[^"\\]++|\\.)*+"|[\[{](?:' + _value(DEPTH_MAX) + rb')*+[\]}]|[^\s,"\[\]{}]++)'
MEMBER = re.compile(rb"\s*+(" + STRING + rb")\s*+:\s*+(" + VALUE + rb")\s*+([,}])", re.DOTALL)
ELEMENT = re.compile(rb"[\[,]\s*+(?=\{)(" + VALUE + rb")\s*+", re.DOTALL)
PROMPT_IDS = b'"prompt_token_ids"'
Cut = tuple[int, int, bytes]


def spans_comment(event: bytes) -> bytes | None:
    """The value of the worker's comment about weight versions, if the event holds it."""
    line = COMMENT_LINE.search(event) if COMMENT in event else None
    return line[1] if line else None


def without_comment(event: bytes) -> bytes:
    """The event without the worker's comment; nothing when it was the comment alone."""
    if COMMENT not in event:
        return event
    rest = COMMENT_LINE.sub(b"", event)
    return rest if rest.strip() else b""


def without_fields(event: bytes, *, token_ids: bool, logprobs: bool) -> bytes:
    """Take token ids out of a chunk, or a whole reply, and set logprobs to null, where the flags say so. All else stays as it is.

    Raises ValueError for an event that holds such a field and is not the JSON of a chunk that can be cut.
    """
    if not ((token_ids and b'token_ids"' in event) or (logprobs and b'"logprobs"' in event)):
        return event
    start = event.find(b"{")
    cuts = list(_chunk_cuts(event, start + 1, token_ids, logprobs)) if start >= 0 else []
    return _cut(event, cuts)


def _chunk_cuts(text: bytes, at: int, token_ids: bool, logprobs: bool) -> Iterator[Cut]:
    kept = False
    for member in _members(text, at):
        if member[1] == PROMPT_IDS and token_ids:
            yield _whole(member, kept)
            continue
        kept = True
        if member[1] == b'"choices"':
            for element in ELEMENT.finditer(text, member.start(2), member.end(2)):
                yield from _choice_cuts(text, element.start(1) + 1, token_ids, logprobs)


def _choice_cuts(text: bytes, at: int, token_ids: bool, logprobs: bool) -> Iterator[Cut]:
    kept = False
    for member in _members(text, at):
        if member[1] == b'"token_ids"' and token_ids:
            yield _whole(member, kept)
            continue
        kept = True
        if member[1] == b'"logprobs"' and logprobs:
            # OpenAI's schema wants the field, null where a client did not ask.
            yield member.start(2), member.end(2), b"null"


def _members(text: bytes, at: int) -> Iterator[re.Match[bytes]]:
    """Members of the object whose first byte after `{` is at `at`."""
    while member := MEMBER.match(text, at):
        yield member
        at = member.end()
        if member[3] == b"}":
            return
    if not re.compile(rb"\s*\}").match(text, at):
        raise ValueError("no JSON object")


def _whole(member: re.Match[bytes], kept: bool) -> Cut:
    """A member with one comma. `kept`: a member before it stays, whose comma goes."""
    if kept:
        return member.start() - 1, member.end(2), b""
    return member.start(), member.end() if member[3] == b"," else member.end(2), b""


def _cut(text: bytes, cuts: list[Cut]) -> bytes:
    parts, at = [], 0
    for start, end, instead in cuts:
        parts += [text[at:start], instead]
        at = end
    return b"".join((*parts, text[at:]))
