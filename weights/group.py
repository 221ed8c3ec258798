"""A group of two ranks that lives for one transfer: rank 0 sends, rank 1 receives.

It is built next to, never inside, the default process group of either process, so a trainer's own collectives
and vLLM's are untouched. Backend by device: gloo on the CPU, NCCL on CUDA. Every phase takes its time from one deadline.
"""

import socket
from datetime import timedelta
from typing import Literal

import torch
from torch.distributed import BroadcastOptions, PrefixStore, Store, TCPStore
from torch.distributed.distributed_c10d import ProcessGroup

from weights.deadline import Deadline
from weights.errors import TransferFailed
from weights.rendezvous import Rendezvous

Rank = Literal[0, 1]


class PairGroup:
    """Joins on construction. Raises TransferFailed or DeadlineExceeded when the other rank does not come in time."""

    def __init__(
        self,
        rendezvous: Rendezvous,
        rank: Rank,
        device: torch.device,
        deadline: Deadline,
    ) -> None:
        self.device = device
        self._deadline = deadline
        try:
            self._group = _join(rendezvous, rank, device, deadline.remaining("joining"))
        except RuntimeError as error:  # c10d raises RuntimeError and its DistError children
            raise TransferFailed(f"could not join {rendezvous.prefix} as rank {rank}: {error}") from error

    def broadcast(self, tensor: torch.Tensor, root: Rank = 0) -> None:
        """From the root into the other rank's `tensor`, in place. Raises TransferFailed or DeadlineExceeded."""
        timeout = self._deadline.remaining("a bucket")
        options = BroadcastOptions()
        options.rootRank, options.rootTensor, options.timeout = root, 0, timeout
        try:
            self._group.broadcast([tensor], options).wait(timeout)
        except RuntimeError as error:
            raise TransferFailed(str(error)) from error

    def acknowledged(self) -> None:
        """The receiver says that it has everything; the sender must not close its sockets before that."""
        self.broadcast(torch.zeros(1, dtype=torch.uint8, device=self.device), root=1)

    def close(self) -> None:
        """Free sockets and threads. Never waits for the other rank."""
        self._group.abort()


def _join(rendezvous: Rendezvous, rank: Rank, device: torch.device, timeout: timedelta) -> ProcessGroup:
    # A store client of its own: requests on one client wait for each other, and a peer that never comes would block all.
    client = TCPStore(rendezvous.host, rendezvous.port, None, False, timeout, wait_for_workers=False)
    client.set_timeout(timeout)
    store = PrefixStore(rendezvous.prefix, client)
    return _nccl(store, rank, timeout) if device.type == "cuda" else _gloo(store, rank, timeout, rendezvous)


def _gloo(store: Store, rank: Rank, timeout: timedelta, rendezvous: Rendezvous) -> ProcessGroup:
    from torch.distributed.distributed_c10d import ProcessGroupGloo

    options = ProcessGroupGloo._Options()
    # Gloo's default is the address of the machine's host name, which may not resolve, or not be the route to the peer.
    address = local_address_towards(rendezvous.host, rendezvous.port)
    options._devices = [ProcessGroupGloo.create_device(hostname=address)]
    options._timeout = timeout
    return ProcessGroupGloo(store, rank, 2, options)


def _nccl(store: Store, rank: Rank, timeout: timedelta) -> ProcessGroup:
    from torch.distributed.distributed_c10d import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = timeout
    return ProcessGroupNCCL(store, rank, 2, options)


def local_address_towards(host: str, port: int) -> str:
    """This machine's address on the route to `host`. Nothing is sent: connecting UDP only asks the routing table."""
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, proto) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
