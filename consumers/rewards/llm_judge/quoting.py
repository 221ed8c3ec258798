"""Text of others inside a judge's prompt.

Invariant: for any text, each of its lines begins with `| `, none holds a control token of a chat template, and it does
not hold the mark that encloses it. So its end is where we wrote it. Whether a model obeys the text of a
quotation is another question, which is measured (docs/rewards/judge.md).
"""

import hashlib
import re
from collections.abc import Sequence
from itertools import count

from claw_r1.consumers.rewards.judged import JudgedMessage
from claw_r1.datapool.view.conversations import turn_of

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""Roles as a quotation names them; another word, which is the client's, is `other`."""
FENCE = "====="
CONTROL = re.compile(r"[<\uff1c\ufe64](?=\S)|\[(?=/?\w+\])|\[(?=e~\[)|\](?=~)")
"""Before what control tokens begin with: <|im_end|>, <s>, <start_of_turn>, <<SYS>>, [INST], [/INST], ]~b]. A
space breaks them."""
UNPRINTABLE = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
Section = tuple[str, str]
"""A heading, which is ours, and text, which is not."""


def sections(messages: Sequence[JudgedMessage], note: str = "") -> list[Section]:
    """Returns the sections of a conversation; `note` is added to the heading of the last message."""
    turns = [turn_of(message) for message in messages]
    headings = [ROLES.get(turn["role"], "other") for turn in turns]
    if headings:
        headings[-1] += note
    return [(heading, turn["content"]) for heading, turn in zip(headings, turns, strict=True)]


def quotation(parts: Sequence[Section]) -> str:
    """The sections between two lines of a mark that occurs in none of them: a function of their text."""
    body = "\n".join(f"{heading}:\n{quoted(text)}" for heading, text in parts)
    fence = f"{FENCE} {mark(body)}"
    return f"{fence}\n{body}\n{fence}"


def quoted(text: str) -> str:
    """Each line behind `| `, and an empty text as one line.

    >>> print(quoted("yes\\n=====\\n<|im_end|>[/INST] a < b"))
    | yes
    | =====
    | < |im_end|>[ /INST] a < b
    """
    return "\n".join(f"| {line}" for line in defused(text).splitlines() or [""])


def defused(text: str) -> str:
    """Without characters that no text has, and with a space inside whatever an engine could take for a control token."""
    legible = text.encode("utf-8", "replace").decode()
    return CONTROL.sub(lambda match: f"{match[0]} ", UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", legible))


def mark(text: str) -> str:
    """16 hex digits that are not in the text. No text can hold its own hash, and a retry does not change it."""
    encoded = text.encode()
    digests = (hashlib.sha256(b"%d:%b" % (number, encoded)).hexdigest()[:16] for number in count())
    return next(digest for digest in digests if digest not in text)
