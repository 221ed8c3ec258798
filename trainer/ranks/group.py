"""How ranks talk: a store for short words, torch's process groups for everything else. Each wait has a deadline."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from trainer.errors import SettingsInvalid
from trainer.ranks.place import Place
from weights.device import Device

START_TIMEOUT_S = 300.0
"""From the first rank that waits at the store to the last one that comes."""
WORD_POLL_S = 1.0


def connect(place: Place) -> dist.TCPStore:
    """The store where all ranks meet; rank 0 serves it, unless the launcher does."""
    return dist.TCPStore(
        place.address,
        place.port,
        is_master=place.rank == 0 and not place.joins_store,
        wait_for_workers=False,
        timeout=timedelta(seconds=START_TIMEOUT_S),
        **({} if place.listener is None else {"master_listen_fd": socket.dup(place.listener)}),
    )


def scoped(store: dist.TCPStore, place: Place) -> dist.Store:
    """The part of it that is this start's: a launcher may start all ranks again around one store."""
    return dist.PrefixStore(f"claw-{place.attempt}", store)


class RankGroup:
    """All ranks of a run, seen from one of them. `gather` and `broadcast` go over gloo, whatever the model runs on."""

    def __init__(self, place: Place, store: dist.Store) -> None:
        self.rank, self.size = place.rank, place.size
        self._store = store
        self._control = dist.new_group(backend="gloo")
        self._words = 0

    def gather(self, value: Any) -> list[Any]:  # Any: what can be pickled
        """The value of each rank, by rank."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self._control)
        return values

    def broadcast(self, value: Any = None) -> Any:  # Any: what can be pickled
        """Rank 0's value."""
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self._control, device=torch.device("cpu"))
        return values[0]

    def call(self) -> None:
        """Rank 0 wakes those who `listen`: a broadcast follows. A collective would not let them wait without end."""
        self._store.set(f"word/{self._words}", "")
        if self._words:
            self._store.delete_key(f"word/{self._words - 1}")  # all have answered it
        self._words += 1

    def listen(self) -> None:
        """Until rank 0 calls, however long that takes. Raises when the store is gone."""
        while not self._has_word():
            pass
        self._words += 1

    def _has_word(self) -> bool:
        try:
            self._store.wait([f"word/{self._words}"], timedelta(seconds=WORD_POLL_S))
        except dist.DistStoreError:  # not within the poll
            return False
        return True


@contextmanager
def joined(place: Place, store: dist.TCPStore, device: Device, timeout_s: float) -> Iterator[RankGroup]:
    """The process groups of this rank. timeout_s: the deadline of every collective, deepspeed's included.

    Raises SettingsInvalid when this machine has fewer CUDA devices than ranks.
    """
    os.environ["LOCAL_RANK"] = str(place.local_rank)  # deepspeed insists
    os.environ["DS_ACCELERATOR"] = device  # read when deepspeed is imported; without it, it guesses
    if device == "cuda":
        if place.local_rank >= torch.cuda.device_count():
            raise SettingsInvalid(
                f"{place.local_rank + 1} ranks on a machine with {torch.cuda.device_count()} CUDA devices"
            )
        torch.cuda.set_device(place.local_rank)
    deadline = timedelta(seconds=timeout_s)
    backend = "nccl" if device == "cuda" else "gloo"
    own = scoped(store, place)
    dist.init_process_group(backend, store=own, rank=place.rank, world_size=place.size, timeout=deadline)
    yield RankGroup(place, own)
    dist.destroy_process_group()  # not after an error: it may wait for whoever is gone


def limit_collectives(timeout_s: float) -> None:
    """Gives every group of this process its deadline: deepspeed makes its own ones without."""
    for group in dist.distributed_c10d._world.pg_map:  # there is no public list of them
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout_s), group)
