"""Byte strings that are written as changes against others: put together again.

Invariant: a result has the length and the digest that its writer gave; otherwise there is none.
"""

import hashlib
from collections.abc import Collection, Mapping

from claw_r1.datapool.errors import PromptBroken
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.events import CallCaptured, Edge

BODY_UNIT = 1
"""Bytes per unit of a body's edge; of a prompt's: `claw_r1.schemas.arrays.ITEM_BYTES`."""


def prompts(calls: Mapping[str, CallCaptured]) -> dict[str, bytes]:
    """Packed ids of the whole prompts of a trajectory's calls, by call id; calls with broken chains are omitted."""
    edges = {call_id: call.prompt for call_id, call in calls.items()}
    return resolve_all(edges, ITEM_BYTES, {call_id: call.response_ids for call_id, call in calls.items()})


def bodies(calls: Mapping[str, CallCaptured]) -> dict[str, bytes]:
    """Request bodies of a trajectory's calls as their clients sent them, by call id; those not to be had are left out."""
    return resolve_all({call_id: call.request for call_id, call in calls.items()}, BODY_UNIT)


def resolve(edge: Edge, base: bytes | None, unit: int) -> bytes:
    """The whole: the first `keep` units of its base, then the suffix, then the last `keep_end` of the base.

    base: the units that the edge refers to (a prompt's: prompt + response of the base call; a body's: the base call's
    body), None if the edge has none or it is unknown. Raises PromptBroken when length or digest are not as promised.
    """
    if edge.base_call_id is None:
        whole = edge.suffix
    elif base is None:
        raise PromptBroken(f"base call {edge.base_call_id} is not there")
    else:
        end = base[-edge.keep_end * unit :] if edge.keep_end else b""
        whole = base[: edge.keep * unit] + edge.suffix + end
    if len(whole) != edge.full_length * unit or hashlib.sha256(whole).hexdigest() != edge.full_digest:
        raise PromptBroken(f"{len(whole) // unit} units, {edge.full_length} promised, or another digest")
    return whole


def resolve_all(
    edges: Mapping[str, Edge],
    unit: int,
    after: Mapping[str, bytes] | None = None,
    resolved: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Wholes by call id, in any order of the edges; those with broken chains are omitted.

    after: call id -> what follows a whole when it is a base (responses, for prompts). resolved: wholes already known.
    """
    wholes: dict[str, bytes] = dict(resolved or {})
    tails = after or {}
    for call_id in edges:
        for link in reversed(chain(edges, call_id, wholes)):
            base_id = edges[link].base_call_id
            base = None if base_id not in wholes else wholes[base_id] + tails.get(base_id, b"")
            try:
                wholes[link] = resolve(edges[link], base, unit)
            except PromptBroken:
                break  # and with it whatever is written against it
    return wholes


def chain(edges: Mapping[str, Edge], call_id: str, resolved: Collection[str] = ()) -> list[str]:
    """Call ids from a call down to the last that is here and not resolved; a circle ends where it closes."""
    links: dict[str, None] = {}
    cursor: str | None = call_id
    while cursor in edges and cursor not in resolved and cursor not in links:
        assert cursor is not None
        links[cursor] = None
        cursor = edges[cursor].base_call_id
    return list(links)
