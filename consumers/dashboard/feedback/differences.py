"""The common parts of two conversations, and the words that differ. Pure."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TypedDict

from claw_r1.datapool.view.conversations import BRANCH, ConversationTurn

WORD = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")
WORDS_MAX = 1_500
"""The most words per side that are compared; in longer texts everything between the common ends differs."""
EXACT_WORDS_MAX = 400
"""Up to here frequent words count, too; beyond, comparing them would take seconds."""
CHARACTERS_MAX = 200_000
"""The most characters per side; longer texts are not split into words."""

ShownPart = tuple[str, bool]
"""Text, and whether the other side has it not."""


class ShownTurn(TypedDict):
    """A turn of a conversation as the page shows it."""

    role: str
    content: str
    reasoning: str | None
    branch: bool
    same: bool
    """Beside another conversation: the other begins with it, too."""
    parts: list[ShownPart] | None
    """The content, where words of it differ from the other's turn at this place."""


def plain(turns: Sequence[ConversationTurn]) -> list[ShownTurn]:
    """A conversation alone."""
    return [_turn(turn) for turn in turns]


def beside(
    one: Sequence[ConversationTurn], other: Sequence[ConversationTurn]
) -> tuple[list[ShownTurn], list[ShownTurn]]:
    """Two conversations with marked differences: turn by turn from where they diverge, in their order."""
    left, right = plain(one), plain(other)
    parted = False
    for ours, theirs in zip(left, right, strict=False):
        if ours == theirs and not parted:
            ours["same"] = theirs["same"] = True
        else:
            parted = True
            if ours["content"] != theirs["content"]:
                ours["parts"], theirs["parts"] = words_apart(ours["content"], theirs["content"])
    for rest in (left[len(right) :], right[len(left) :]):
        for turn in rest:
            turn["parts"] = [(turn["content"], True)]
    return left, right


def words_apart(one: str, other: str) -> tuple[list[ShownPart], list[ShownPart]]:
    """Both texts in parts; the parts that do not differ are equal, in order."""
    if max(len(one), len(other)) > CHARACTERS_MAX:
        return ([(one, False)], [(other, False)]) if one == other else ([(one, True)], [(other, True)])
    a, b = WORD.findall(one), WORD.findall(other)
    front = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    longest = min(len(a), len(b)) - front
    pairs = zip(reversed(a), reversed(b), strict=False)
    back = min(longest, next((at for at, (x, y) in enumerate(pairs) if x != y), longest))
    a_mid, b_mid = a[front : len(a) - back], b[front : len(b) - back]
    head, tail = ("".join(a[:front]), False), ("".join(a[len(a) - back :]), False)
    left: list[ShownPart] = [head]
    right: list[ShownPart] = [head]
    longer = max(len(a_mid), len(b_mid))
    if longer > WORDS_MAX:
        left.append(("".join(a_mid), True))
        right.append(("".join(b_mid), True))
    else:
        for kind, i, j, k, m in SequenceMatcher(None, a_mid, b_mid, autojunk=longer > EXACT_WORDS_MAX).get_opcodes():
            left.append(("".join(a_mid[i:j]), kind != "equal"))
            right.append(("".join(b_mid[k:m]), kind != "equal"))
    return [part for part in (*left, tail) if part[0]], [part for part in (*right, tail) if part[0]]


def _turn(turn: ConversationTurn) -> ShownTurn:
    branch = not turn["role"] and turn["content"] == BRANCH
    return ShownTurn(
        role=turn["role"], content=turn["content"], reasoning=turn["reasoning"], branch=branch, same=False, parts=None
    )
