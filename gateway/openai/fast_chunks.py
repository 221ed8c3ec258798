"""The usual chunk of a stream, recognised without parsing it: nineteen of twenty hold one token of one choice.

Invariant: what is recognised means what a parser would find, provided that it is JSON (and the accumulator, which parses
it later, falls back to each chunk alone if it is not). A shape is learned from a chunk that `sse.USUAL` has matched:
its front to the text, and its end after the token's id. A later chunk with the same front and end has the same
brackets open and closed there, so what stands between is the same members, and only text, log-probability and id
differ.
"""

import re

from gateway.openai.sse import USUAL

FRONT = re.compile(
    rb'(data: \{[^{}\[\]]*?,"choices":\[\{"index":([0-9]{1,9}),"delta":\{"(content|reasoning|reasoning_content)":")'
    rb'(?:[^"\\]++|\\.)*+"\},"logprobs":',
    re.DOTALL,
)
TEXT_END, CONTENT_BEGIN, CONTENT_END = b'"},"logprobs":', b'{"content":[', b"]}"
TOKENS = TEXT_END + CONTENT_BEGIN
TOKENS_LENGTH = len(TOKENS)
IDS = b',"token_ids":['
ChunkFields = tuple[bytes, bytes, bytes]
"""What a usual chunk holds, as JSON: the inside of a string, of a list of tokens and of a list of one id."""


class ChunkShape:
    """What the usual chunks of a stream have in common."""

    def __init__(self, choice: int, name: str, front: bytes, ids_begin: bytes, end: bytes) -> None:
        """name: of the text in the delta. ids_begin: from the end of the log-probabilities to the id."""
        self.choice, self.name, self.front, self.ids_begin, self.end = choice, name, front, ids_begin, end
        self._front_length, self._ids_begin_length, self._end_length = len(front), len(ids_begin), len(end)
        self.tail = b"%bnull%b%b" % (TEXT_END, ids_begin[len(CONTENT_END) : -len(IDS)], end[1:])
        """What follows the text for a client that asked for neither ids nor log-probabilities."""

    def read(self, event: bytes) -> ChunkFields | None:
        """What a chunk of this shape holds; None when it is not one."""
        if event.count(b"\n") != 2 or not (event.startswith(self.front) and event.endswith(self.end)) or b"\r" in event:
            return None  # one event is one line
        text_end = event.find(TOKENS, self._front_length)
        tokens_end = event.rfind(self.ids_begin, text_end)
        if text_end < 0 or tokens_end < 0:
            return None
        text = event[self._front_length : text_end]
        tokens = event[text_end + TOKENS_LENGTH : tokens_end]
        token_id = event[tokens_end + self._ids_begin_length : -self._end_length]
        # A text with a quote in it may end elsewhere; one chunk holds one token.
        if b'"' in text or text.endswith(b"\\") or not (tokens and token_id.isdigit()):
            return None
        return text, tokens, token_id

    def without(self, fields: ChunkFields, *, token_ids: bool, logprobs: bool) -> bytes:
        """The chunk without its token ids, and with null for log-probabilities, where the flags say so."""
        text, content, token_id = fields
        if token_ids and logprobs:
            return self.front + text + self.tail
        tokens = TEXT_END + b"null" if logprobs else b"%b%b]}" % (TOKENS, content)
        between = self.ids_begin[len(CONTENT_END) : -len(IDS)]
        ids = self.end[1:] if token_ids else b"%b%b%b" % (IDS, token_id, self.end)
        return b"".join((self.front, text, tokens, between, ids))


def shape_of(event: bytes) -> ChunkShape | None:
    """The shape of a chunk, None when it is not a usual one."""
    usual = USUAL.fullmatch(event) if b'prompt_token_ids"' not in event else None
    if usual is None:
        return None
    front, logprobs, middle, ids, end = usual.groups()
    begin = FRONT.fullmatch(front)
    listed = logprobs.startswith(CONTENT_BEGIN) and logprobs.endswith(CONTENT_END) and ids.startswith(IDS)
    if begin is None or not listed:
        return None
    return ChunkShape(int(begin[2]), begin[3].decode(), begin[1], CONTENT_END + middle + IDS, b"]" + end)
