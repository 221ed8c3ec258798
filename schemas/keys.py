"""Record keys. Ids may contain any character, so each part is percent-encoded before parts are joined by `/`."""

import re
from functools import lru_cache
from urllib.parse import quote, unquote

RECENT = 4096
PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")


def group_key(group_id: str) -> bytes:
    """Key of every fact of a group, and of its GroupRecord."""
    return group_id.encode("utf-8", "surrogatepass")


def trajectory_key(group_id: str, trajectory_id: str) -> bytes:
    return _join(group_id, trajectory_id)


def step_key(group_id: str, trajectory_id: str, call_id: str) -> bytes:
    return _join(group_id, trajectory_id, call_id)


def parts(key: bytes) -> tuple[str, ...]:
    """Ids of a trajectory or step key. The inverse of the functions above."""
    return tuple(unquote(part, errors="surrogatepass") for part in key.decode("ascii").split("/"))


def _join(*ids: str) -> bytes:
    return "/".join(map(_quoted, ids)).encode("ascii")


@lru_cache(RECENT)
def _quoted(part: str) -> str:
    """Percent-encoded; most ids are ready-made, and come again soon."""
    return part if PLAIN.fullmatch(part) else quote(part, safe="", errors="surrogatepass")
