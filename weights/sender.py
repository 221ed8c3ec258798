"""Sends to workers, each in a daemon thread of its own with a deadline: a worker that dies blocks nobody else."""

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch.distributed import TCPStore

from weights.deadline import Deadline
from weights.errors import SendersBusy, WeightsError
from weights.group import PairGroup
from weights.rendezvous import Rendezvous
from weights.staging import Staging


@dataclass(frozen=True, slots=True)
class Sent:
    """How one send ended; `error` is None when the worker acknowledged every byte."""

    worker_id: str
    run_id: str
    version: int
    bytes_total: int
    seconds: float
    error: str | None


class Senders:
    """Opens a rendezvous per send. All of them share one key-value store, each under a prefix of its own."""

    def __init__(
        self,
        *,
        bind_host: str,
        advertise_host: str,
        device: torch.device,
        timeout_s: float,
        senders_max: int,
        on_sent: Callable[[Sent], None],
    ) -> None:
        self._advertise_host = advertise_host
        self._device = device
        self._timeout_s = timeout_s
        self._free = threading.Semaphore(senders_max)
        self._on_sent = on_sent
        self._numbers = itertools.count(1)
        self._threads: set[threading.Thread] = set()
        self._store: TCPStore | None
        self._store, self._port = _listen(bind_host)

    def start(self, staging: Staging, worker_id: str) -> Rendezvous:
        """Start the sender of one transfer, which holds the staging until it ends. Raises SendersBusy."""
        if not self._free.acquire(blocking=False):
            raise SendersBusy("every sender is busy")
        # The process id keeps prefixes of two trainers on one port apart when one replaces the other.
        prefix = f"claw/{os.getpid()}/{next(self._numbers)}"
        rendezvous = Rendezvous(
            self._advertise_host,
            self._port,
            prefix,
            self._timeout_s,
            staging.snapshot.bucket_bytes_max,
        )
        name = f"weights-{worker_id}-{staging.version}"
        thread = threading.Thread(target=self._run, args=(staging, worker_id, rendezvous), name=name, daemon=True)
        self._threads.add(thread)
        thread.start()
        return rendezvous

    def close(self, wait_s: float) -> None:
        """End the sends whose worker has not come, and wait for the others, at most `wait_s`. No send may start after it.

        A thread that comes back out of torch while the interpreter shuts down aborts the process. A send that stands still
        in the middle cannot be ended from outside; its thread stays there until its deadline or the end of the process.
        """
        self._store = None  # the last reference: those who wait for a key of it see their connection end
        ends_at = time.monotonic() + wait_s
        for thread in list(self._threads):
            thread.join(max(0.0, ends_at - time.monotonic()))

    def _run(self, staging: Staging, worker_id: str, rendezvous: Rendezvous) -> None:
        began = time.monotonic()
        error: str | None = None
        try:
            send(staging, rendezvous, self._device)
        except WeightsError as failure:
            error = str(failure)
        finally:
            self._free.release()
            self._forget(rendezvous.prefix)
            self._threads.discard(threading.current_thread())
        seconds = time.monotonic() - began
        total = staging.snapshot.manifest.bytes_total
        self._on_sent(Sent(worker_id, staging.run_id, staging.version, total, seconds, error))

    def _forget(self, prefix: str) -> None:
        """A run makes many thousand transfers; their keys must not pile up in the store."""
        store = self._store
        if store is None:
            return
        for key in store.list_keys():
            if key.startswith(prefix + "/"):
                store.delete_key(key)


def _listen(host: str) -> tuple[TCPStore, int]:
    # Bound here, because the store by itself would listen on every interface.
    listener = socket.create_server((host, 0), backlog=512)
    port = int(listener.getsockname()[1])
    descriptor = listener.detach()
    limit = timedelta(seconds=10)
    store = TCPStore(
        host,
        port,
        None,
        True,
        limit,
        wait_for_workers=False,
        master_listen_fd=descriptor,
    )
    return store, port


def send(staging: Staging, rendezvous: Rendezvous, device: torch.device) -> None:
    """Rank 0 of one transfer, to the worker's acknowledgement. Raises a WeightsError by `timeout_s`."""
    group = PairGroup(rendezvous, 0, device, Deadline(rendezvous.timeout_s))
    try:
        for bucket in staging.snapshot.buckets:
            if bucket.numel():
                group.broadcast(bucket.to(device))
        group.acknowledged()
    finally:
        group.close()
