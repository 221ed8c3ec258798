"""What a person must know beside the results: one line on stderr, so that stdout stays what was asked for."""

import sys


def notice(text: str) -> None:
    """Says it at once."""
    print(f"claw: {text}", file=sys.stderr, flush=True)
