"""Seeds of groups and members, derived from the run's seed: neighbours are unrelated, repeats
are equal everywhere."""

import hashlib


def derived_seed(*parts: int | str) -> int:
    """A number below 2**63 that is a function of the parts and their order."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
