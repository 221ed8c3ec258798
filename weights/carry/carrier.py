"""A process that carries versions between hosts by a collective: `python -m claw_r1.weights.carry.carrier TRANSPORT`.

It owns the communicator, and the file that it sends or fills, open for so long, and can fail in one way only: by
ending. Whoever started it gives it orders on stdin and reads on stdout how far it is, a line each:

    (start)                                loaded
    join RANK WORLD HOST PORT ADDRESS      listening PORT (rank 0 only), joined
    carry BYTES BUCKET FILE                at N (the first N bytes are there; of each bucket of so many), done

HOST and PORT are those of rank 0's store; ADDRESS is this host's own, by which the others reach it. A group is joined once: another one
is another process. The transport is never aborted and no group is destroyed, since both can hang: whoever has had enough sends SIGKILL.
"""

import mmap
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from claw_r1.schemas.http import family_of

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup, Store

FOREVER = timedelta(days=1)
"""Limits are kept by whoever started this, and kills it."""


class Collective(Protocol):
    """A communicator of one group, by which rank 0 gives bytes to all others."""

    def broadcast(self, bucket: "torch.Tensor") -> None:
        """[n] uint8 in host memory: sent by rank 0, filled at the others when this returns."""


class Gloo:
    """Over sockets, straight from the bucket and into it."""

    def __init__(self, store: "Store", rank: int, world: int, address: str) -> None:
        from torch.distributed import ProcessGroupGloo

        options = ProcessGroupGloo._Options()  # the only way to name the address that others reach
        options._devices = [ProcessGroupGloo.create_device(hostname=address)]
        options._timeout = FOREVER
        self._group: ProcessGroup = ProcessGroupGloo(store, rank, world, options)

    def broadcast(self, bucket: "torch.Tensor") -> None:
        """Broadcasts, as the protocol says."""
        self._group.broadcast(bucket, 0).wait()


class Nccl:
    """Between GPUs, through a buffer of this process's device and one in pinned memory.
    Proved on no GPU so far."""

    def __init__(self, store: "Store", rank: int, world: int, _: str) -> None:
        import torch
        from torch.distributed import ProcessGroupNCCL

        torch.cuda.set_device(0)
        self._group: ProcessGroup = ProcessGroupNCCL(store, rank, world)
        self._sends = rank == 0
        self._pinned = self._device = torch.empty(0, dtype=torch.uint8)

    def broadcast(self, bucket: "torch.Tensor") -> None:
        """Broadcasts, as the protocol says."""
        import torch

        if len(self._pinned) < len(bucket):
            self._pinned = torch.empty(len(bucket), dtype=torch.uint8, pin_memory=True)
            self._device = torch.empty(len(bucket), dtype=torch.uint8, device="cuda")
        pinned, device = self._pinned[: len(bucket)], self._device[: len(bucket)]
        if self._sends:
            pinned.copy_(bucket)
            device.copy_(pinned, non_blocking=True)
        self._group.broadcast(device, 0).wait()
        if not self._sends:
            pinned.copy_(device, non_blocking=True)
        torch.cuda.synchronize()  # the sender, too: its buffers are filled again
        if not self._sends:
            bucket.copy_(pinned)


TRANSPORTS: dict[str, type[Gloo | Nccl]] = {"gloo": Gloo, "nccl": Nccl}


def main() -> int:
    """Obeys until stdin ends: 0, or until something goes wrong: 1."""
    try:
        obey()
    except (RuntimeError, OSError, ValueError) as error:  # another member's end, nearly always
        print(f"carrier: {error}", file=sys.stderr)
        return 1
    return 0


def obey() -> None:
    """Carries out orders."""
    transport: type[Gloo | Nccl] = TRANSPORTS[sys.argv[1]]
    group: Collective | None = None
    import torch  # seconds: whoever started this need not wait for them when it has something to carry

    say("loaded")
    for line in sys.stdin:
        order, *words = line.rstrip("\n").split(" ")
        if order == "join":
            rank, world, host, port, address = int(words[0]), int(words[1]), words[2], int(words[3]), words[4]
            group = transport(store_at(rank, host, port), rank, world, address)
            group.broadcast(torch.zeros(1, dtype=torch.uint8))  # a communicator may be made at its first use
            say("joined")
        elif group is not None:
            carry(group, Path(" ".join(words[2:])), int(words[0]), int(words[1]), sends=rank == 0)
            say("done")


def store_at(rank: int, host: str, port: int) -> "Store":
    """Returns the store of the group; rank 0 has it, on a port of this address and of no other."""
    from torch.distributed import TCPStore

    if rank > 0:
        return TCPStore(host, port, is_master=False, timeout=FOREVER)
    listener = socket.create_server((host, port), family=family_of(host))
    port = listener.getsockname()[1]
    say(f"listening {port}")
    return TCPStore(
        host, port, is_master=True, wait_for_workers=False, timeout=FOREVER, master_listen_fd=listener.detach()
    )


def carry(group: Collective, path: Path, nbytes: int, bucket_bytes: int, *, sends: bool) -> None:
    """The first bytes of a file, from rank 0's into everybody's, bucket by bucket: a mapping of it all costs more than both copies."""
    import torch

    buffer = mmap.mmap(-1, min(nbytes, bucket_bytes))
    bucket, content = torch.frombuffer(buffer, dtype=torch.uint8), memoryview(buffer)
    with path.open("rb" if sends else "r+b", buffering=0) as file:
        for begin in range(0, nbytes, bucket_bytes):
            length = min(bucket_bytes, nbytes - begin)
            if sends:
                file.readinto(content[:length])
            group.broadcast(bucket[:length])
            if not sends:
                file.write(content[:length])
            say(f"at {begin + length}")


def say(line: str) -> None:
    """Tell whoever started this."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
