"""The communication of ranks: a store where they meet, process groups of torch for all else. Each collective has a
deadline.

Rank 0 sends verbs of the `Learner` with their arguments; each rank performs them on its own one.
Invariant: a verb ends the same way on every rank, or it ends every rank.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from claw_r1.trainer.errors import RankLost, Stopped, TrainerError
from claw_r1.trainer.ranks.heartbeat import Heartbeat
from claw_r1.trainer.ranks.place import RankPlace
from claw_r1.weights.device import Device

START_TIMEOUT_S = 300.0
"""From the first rank that waits at the store to the last one that comes."""
IDLE = timedelta(days=365)
"""How long a rank waits for the next verb; whether rank 0 lives meanwhile, the heartbeat knows."""
LEAVE = "leave"
"""The last verb; no one of the learner's."""
DISK = "OSError"


def connect(place: RankPlace) -> dist.TCPStore:
    """The store where all ranks meet; rank 0 serves it, unless the launcher does."""
    return dist.TCPStore(
        place.address,
        place.port,
        is_master=place.rank == 0 and not place.joins_store,
        wait_for_workers=False,
        timeout=timedelta(seconds=START_TIMEOUT_S),
        **({} if place.listener is None else {"master_listen_fd": socket.dup(place.listener)}),
    )


class RankGroup:
    """All ranks of a run, seen from one of them; over gloo, whatever the model runs on."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._control = dist.new_group(backend="gloo")
        self._verbs = dist.new_group(backend="gloo", timeout=IDLE)

    def limit(self, timeout_s: float) -> None:
        """The deadline of every group of this process but that of verbs: deepspeed makes its own ones without."""
        for group in dist.distributed_c10d._world.pg_map:  # there is no public list of them
            if group is not self._verbs:
                dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout_s), group)

    def send(self, verb: str, *arguments: object) -> None:
        """From rank 0 to all others, which have finished the verb before."""
        with self.watched():
            _broadcast((verb, arguments), self._verbs)

    def receive(self) -> tuple[str, tuple[Any, ...]]:  # Any: arguments of any verb
        """Receives what rank 0 sends."""
        with self.watched():
            verb, arguments = _broadcast(None, self._verbs)
        if verb == LEAVE:
            self._heartbeat.stop()  # rank 0, and its store, may be gone before this rank is
        return verb, arguments

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around collectives. If the other end of one is gone, the heartbeat gets time to name it and end this rank."""
        try:
            yield
        except RuntimeError:  # of torch: ours, or that of a collective whose other end is gone
            self._heartbeat.suspect()
            raise

    @contextmanager
    def performed(self) -> Iterator[None]:
        """Around a verb. A TrainerError in it is one that all ranks raise; an OSError of some is one of all.

        Anything else, or an error on some ranks only, is the end of this rank; the heartbeat tells the others.
        """
        problem: Exception | None = None
        with self.watched():
            try:
                yield
            except (TrainerError, OSError) as error:
                problem = error
            kind = DISK if isinstance(problem, OSError) else type(problem).__name__
            outcomes: list[Any] = [None] * dist.get_world_size()  # Any: torch's signature
            dist.all_gather_object(outcomes, problem and (kind, str(problem)), group=self._control)
        failed = {rank: outcome for rank, outcome in enumerate(outcomes) if outcome is not None}
        kinds = {kind for kind, _ in failed.values()}
        reasons = "; ".join(f"rank {rank}: {kind}: {message}" for rank, (kind, message) in failed.items())
        if kinds not in (set(), {DISK}) and (len(failed) < len(outcomes) or len(kinds) > 1):
            raise RankLost(reasons)
        if problem is not None:
            raise problem
        if failed:
            raise OSError(reasons)

    def leading(self, before_micro_batch: Callable[[], None]) -> Callable[[], None]:
        """Rank 0's hook before each micro-batch: whether to go on is decided there, and is the same everywhere."""

        def hook() -> None:
            try:
                before_micro_batch()
            except Stopped:
                _broadcast(False, self._control)
                raise
            _broadcast(True, self._control)

        return hook

    def following(self) -> None:
        """The hook of the others. Raises Stopped when rank 0 did."""
        if not _broadcast(None, self._control):
            raise Stopped("rank 0 stops")


@contextmanager
def joined(
    place: RankPlace, store: dist.TCPStore, device: Device, timeout_s: float, heartbeat: Heartbeat
) -> Iterator[RankGroup]:
    """This process among the ranks. timeout_s: the deadline of collectives."""
    os.environ["LOCAL_RANK"] = str(place.local_rank)  # deepspeed insists
    os.environ["DS_ACCELERATOR"] = device  # read when deepspeed is imported; without it, it guesses
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        store=dist.PrefixStore(place.scope, store),
        rank=place.rank,
        world_size=place.size,
        timeout=timedelta(seconds=timeout_s),
    )
    yield RankGroup(heartbeat)
    dist.destroy_process_group()  # not after an error: it may wait for whoever is gone


def _broadcast(value: Any, group: dist.ProcessGroup) -> Any:  # Any: what can be pickled
    """Rank 0's value, on all."""
    values = [value]
    dist.broadcast_object_list(values, src=0, group=group, device=torch.device("cpu"))
    return values[0]
