"""`--ranks N`: the other ranks as child processes of rank 0, on this machine. They end with
it, whatever ends it."""

import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import Popen

from claw_r1.runtime.errors import describe_exit
from claw_r1.runtime.processes import child
from claw_r1.trainer.ranks.place import RankPlace

LOOPBACK = "127.0.0.1"
END_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Launched:
    """The place of this process, rank 0, and the processes of ranks 1, 2, ...: `children[0]` is rank 1."""

    place: RankPlace
    children: Sequence["Popen[bytes]"] = ()

    def ended(self) -> dict[int, str]:
        """Ranks whose process is over too early -> how. With 0 they end when they are sent away."""
        codes = {rank: each.poll() for rank, each in enumerate(self.children, start=1)}
        return {rank: describe_exit(code) for rank, code in codes.items() if code}


ALONE = Launched(RankPlace())


@contextmanager
def launched(own: RankPlace | None, ranks: int, command: Sequence[str]) -> Iterator[Launched]:
    """Starts ranks 1 to `ranks` - 1, each by `command`, with its place in the environment; ends them with the block.

    own: the place of this process where another launcher started them all. Enter it before torch is imported (the ranks
    share the cores), in the main thread (they die with it).
    """
    if own is not None or ranks == 1:
        yield Launched(own) if own else ALONE
        return
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks)))
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        children = [child.start(command, env=_environment(rank, ranks, port)) for rank in range(1, ranks)]
        try:
            yield Launched(RankPlace(0, ranks, 0, LOOPBACK, port, listener=listener.fileno()), children)
        finally:
            for process in children:
                child.end(process, (0, END_TIMEOUT_S), (signal.SIGKILL, END_TIMEOUT_S))


def this_command(arguments: Sequence[str] | None) -> list[str]:
    """The command line of this trainer, for one more process."""
    return list(child.module_argv("claw_r1.trainer", *(sys.argv[1:] if arguments is None else arguments)))


def _environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    places = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "MASTER_ADDR": LOOPBACK, "MASTER_PORT": port}
    return {**os.environ, **{name: str(value) for name, value in places.items()}}
