"""What a person must know beside the results: one line on stderr, so that stdout holds nothing but results."""

import sys


def notice(text: str) -> None:
    """Prints the line at once."""
    print(f"claw: {text}", file=sys.stderr, flush=True)
