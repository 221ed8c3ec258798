"""The choice of the engine that takes a call: a pure choice.

Least outstanding calls, with affinity: the calls of a trajectory go to the same worker (its prefix cache is warm) as
long as that one is not `AFFINITY_SLACK` calls busier than the idlest. Affinity is rendezvous hashing, so gateways agree
without talking and a worker that comes or goes moves few trajectories.
"""

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b

from claw_r1.gateway.upstream.engines import Engine

AFFINITY_SLACK = 4


def choose(
    engines: Sequence[Engine],
    outstanding: Mapping[str, int],
    *,
    model: str | None,
    trajectory: str,
    run_id: str | None = None,
    avoid: Collection[str] = (),
    trains: bool = True,
) -> Engine | None:
    """The engine for a call, or None when none serves its model.

    outstanding: calls in flight by engine URL. run_id: prefer workers that hold weights of this run. avoid: URLs of
    engines that failed this call; taken again only when there is no other. trains: the call is to be trained on, so that
    no worker that is behind takes it; any other call goes to such a worker only when no other is left.
    """
    able = [engine for engine in engines if engine.serves(model) and not (trains and engine.behind)]
    able = [engine for engine in able if engine.url not in avoid] or able if avoid else able
    able = [engine for engine in able if engine.run_id == run_id] or able if run_id else able
    able = able if trains else [engine for engine in able if not engine.behind] or able
    if len(able) < 2:
        return able[0] if able else None
    idlest = min(able, key=lambda engine: outstanding.get(engine.url, 0))
    favourite = max(able, key=lambda engine: _rank(trajectory, engine.url))
    surplus = outstanding.get(favourite.url, 0) - outstanding.get(idlest.url, 0)
    return favourite if surplus <= AFFINITY_SLACK else idlest


def _rank(trajectory: str, url: str) -> bytes:
    return blake2b(f"{trajectory}\x00{url}".encode(), digest_size=8).digest()
