"""The usual chunk of a stream, recognised without parsing it: nineteen of twenty say one token of one choice.

Invariant: what is recognised means what a parser would find, provided that it is JSON (and the assembly, which parses
it later, falls back to each chunk alone if it is not). A shape is learned from a chunk that `sse.USUAL` has matched:
its front to the text, and its end after the token's id. A later chunk with the same front and end has the same
brackets open and closed there, so what stands between is the same members, and only text, log-probability and id
differ.
"""

import re
from typing import NamedTuple

from gateway.sse import USUAL

FRONT = re.compile(
    rb'(data: \{[^{}\[\]]*?,"choices":\[\{"index":([0-9]{1,9}),"delta":\{"(content|reasoning|reasoning_content)":")'
    rb'(?:[^"\\]++|\\.)*+"\},"logprobs":',
    re.DOTALL,
)
TEXT_END, CONTENT_BEGIN, CONTENT_END = b'"},"logprobs":', b'{"content":[', b"]}"
TOKENS = TEXT_END + CONTENT_BEGIN
IDS = b',"token_ids":['
RUN_MAX = 256


class Said(NamedTuple):
    """What one usual chunk says, as JSON: the inside of a string, of a list of tokens and of a list of one id."""

    text: bytes
    tokens: bytes
    id: bytes


class Run:
    """Usual chunks of one shape that came one after the other. `events` are they, as they came."""

    __slots__ = ("events", "ids", "shape", "texts", "tokens")

    def __init__(self, shape: "Shape") -> None:
        self.shape = shape
        self.events: list[bytes] = []
        self.texts: list[bytes] = []
        self.tokens: list[bytes] = []
        self.ids: list[bytes] = []

    def add(self, event: bytes, said: Said) -> None:
        """One more."""
        self.events.append(event)
        self.texts.append(said.text)
        self.tokens.append(said.tokens)
        self.ids.append(said.id)


class Shape(NamedTuple):
    """What the usual chunks of a stream have in common."""

    choice: int
    name: str
    """Of the text in the delta."""
    front: bytes
    ids_begin: bytes
    """From the end of the log-probabilities to the id."""
    end: bytes

    def said(self, event: bytes) -> Said | None:
        """What a chunk of this shape says; None when it is not one."""
        if not (event.startswith(self.front) and event.endswith(self.end)) or b"\r" in event:
            return None
        begin = len(self.front)
        text_end = event.find(TOKENS, begin)
        tokens_end = event.rfind(self.ids_begin, text_end)
        if text_end < 0 or tokens_end < 0:
            return None
        said = Said(
            event[begin:text_end],
            event[text_end + len(TOKENS) : tokens_end],
            event[tokens_end + len(self.ids_begin) : -len(self.end)],
        )
        # A text with a quote in it may end elsewhere; one event is one line; one chunk says one token.
        plain = b'"' not in said.text and not said.text.endswith(b"\\") and event.count(b"\n") == 2
        return said if plain and said.tokens and said.id.isdigit() else None

    def shown(self, said: Said, *, token_ids: bool, logprobs: bool) -> bytes:
        """The chunk without its token ids, and with null for log-probabilities, where the flags say so."""
        tokens = TEXT_END + b"null" if logprobs else b"%b%b]}" % (TOKENS, said.tokens)
        between = self.ids_begin[len(CONTENT_END) : -len(IDS)]
        ids = self.end[1:] if token_ids else b"%b%b%b" % (IDS, said.id, self.end)
        return b"".join((self.front, said.text, tokens, between, ids))


def shape_of(event: bytes) -> Shape | None:
    """The shape of a chunk, None when it is not a usual one."""
    usual = USUAL.fullmatch(event) if b'prompt_token_ids"' not in event else None
    if usual is None:
        return None
    front, logprobs, middle, ids, end = usual.groups()
    begun = FRONT.fullmatch(front)
    listed = logprobs.startswith(CONTENT_BEGIN) and logprobs.endswith(CONTENT_END) and ids.startswith(IDS)
    if begun is None or not listed:
        return None
    return Shape(int(begun[2]), begun[3].decode(), begun[1], CONTENT_END + middle + IDS, b"]" + end)
