"""The notices for a person beside the results: lines on stderr, so that stdout holds nothing but results."""

import sys
import time

PROGRESS_EVERY_S = 2.0


def notice(text: str) -> None:
    """Prints the line at once."""
    print(f"claw: {text}", file=sys.stderr, flush=True)


class Progress:
    """The progress of a long command, printed every two seconds. what: a sentence with `{done}` and `{total}`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last_s = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self._last_s >= PROGRESS_EVERY_S:
            self._last_s = time.monotonic()
            print(self._what.format(done=done, total=total), file=sys.stderr, flush=True)
