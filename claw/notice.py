"""The notices for a person beside the results: lines on stderr, so that stdout holds nothing but results."""

import sys
import time
import unicodedata

PROGRESS_EVERY_S = 2.0
JOINERS = "\u200c\u200d"
"""Parts of words in some scripts, and of joined emoji: not printable to Python, and harmless."""


def notice(text: str) -> None:
    """Prints the text at once."""
    print(f"claw: {terminal_text(text)}", file=sys.stderr, flush=True)


def terminal_text(text: str) -> str:
    """The text for a terminal, whoever wrote it: `printable` but for its lines and tabs."""
    return "\n".join(
        line if line.isprintable() else "\t".join(map(printable, line.split("\t"))) for line in text.split("\n")
    )


def printable(text: str) -> str:
    """Somebody else's text on one line: what is neither printable nor a space stands there by its number, so that nobody's words move
    the cursor, set the clipboard or hide a line."""
    return "".join(each if _is_harmless(each) else f"<U+{ord(each):04X}>" for each in text)


def _is_harmless(character: str) -> bool:
    return character.isprintable() or character in JOINERS or unicodedata.category(character) == "Zs"


class Progress:
    """The progress of a long command, printed every two seconds. what: a sentence with `{done}` and `{total}`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last_s = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self._last_s >= PROGRESS_EVERY_S:
            self._last_s = time.monotonic()
            print(self._what.format(done=done, total=total), file=sys.stderr, flush=True)
