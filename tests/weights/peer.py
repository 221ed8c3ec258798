"""A worker in a process of its own: receives one offer and prints what it got, or how it failed, as one JSON line.

usage: peer.py OFFER_URL [die-after-N-tensors]
"""

import json
import os
import sys
import time
import urllib.request

from weights.errors import WeightsError
from weights.manifest import memory_of
from weights.receive import receive
from weights.rendezvous import Transfer


def main(url: str, die_after: int | None) -> None:
    """Receive, then describe."""
    with urllib.request.urlopen(url, timeout=10) as reply:
        offer = Transfer.from_json(json.load(reply))
    began = time.monotonic()
    got = []
    try:
        for name, tensor in receive(offer.rendezvous, offer.manifest):
            got.append([name, str(tensor.dtype), list(tensor.shape), bytes(memory_of(tensor)).hex()[:64]])
            if die_after is not None and len(got) == die_after:
                os.kill(os.getpid(), 9)
    except WeightsError as error:
        print(json.dumps({"error": type(error).__name__, "seconds": time.monotonic() - began}))
        return
    print(json.dumps({"version": offer.version, "tensors": got, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
