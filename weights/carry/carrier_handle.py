"""Carriers as seen by whoever starts them: orders out, progress in, each with a limit, and
SIGKILL where one is passed."""

import os
import select
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Literal

from claw_r1.weights.deadline import Deadline
from claw_r1.weights.errors import TransferFailed

Spawn = Callable[[str], "subprocess.Popen[bytes]"]
"""Starts `claw_r1.weights.carry.carrier` for a transport, with pipes at stdin and stdout; it must end with
this process."""
CARRIER = "claw_r1.weights.carry.carrier"
Transport = Literal["nccl", "gloo", "http"]
"""The ways by which versions travel between hosts."""
LINE_BYTES_MAX = 4096
STALLED_S = 10.0
RATE_MIN = 20e6
"""Bytes per second, and seconds beside, without which a version does not get on."""


def bucket_s(bucket_bytes: int) -> float:
    """Returns the longest time from one bucket to the next."""
    return STALLED_S + bucket_bytes / RATE_MIN


def readable(source: int | socket.socket, timeout_s: float = 0.0) -> bool:
    """Returns whether there is something to read, or an end, before the time is over."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def carried_by(transports: Sequence[Transport], runs_on_cpu: Callable[[], bool]) -> tuple[Transport, ...]:
    """Returns those that stand before http, and that a processor has. runs_on_cpu: asked for nccl alone, since the
    answer may take seconds."""
    before = takewhile(lambda name: name != "http", transports)
    return tuple(name for name in before if name == "gloo" or not runs_on_cpu())


class Carrier:
    """A running carrier. `end` may be called from any thread, and ends whatever waits for it here."""

    def __init__(self, spawn: Spawn, transport: str) -> None:
        """Raises OSError."""
        self.transport = transport
        self._process = spawn(transport)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._pipes = threading.Lock()
        """Held while a pipe is used: a number that was closed meanwhile would be another file's."""
        self._unparsed = b""

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, *words: object) -> None:
        """Raises TransferFailed."""
        try:
            with self._pipes:
                os.write(self._stdin.fileno(), (" ".join(map(str, words)) + "\n").encode())
        except (OSError, ValueError) as error:
            raise TransferFailed(f"the carrier takes no orders: {error}") from error

    def expect(self, word: str, deadline: Deadline, also: Callable[[], object] = lambda: None) -> list[str]:
        """The words after the next line's first. `also`: asked every tenth of a second, may raise. Raises
        TransferFailed for another word or the carrier's end, DeadlineExceeded."""
        first, *words = self.hear(deadline, also)
        if first != word:
            raise TransferFailed(f"the carrier says {first!r} in place of {word!r}")
        return words

    def hear(self, deadline: Deadline, also: Callable[[], object] = lambda: None) -> list[str]:
        """The words of the next line. Raises as `expect`."""
        while b"\n" not in self._unparsed:
            also()
            left_s = deadline.remaining_s(f"a word of the {self.transport} carrier")
            with self._pipes:
                if self._stdout.closed or (readable(self._stdout.fileno(), min(left_s, 0.1)) and not self._read()):
                    raise TransferFailed(f"the {self.transport} carrier ended")
        line, _, self._unparsed = self._unparsed.partition(b"\n")
        return line.decode(errors="replace").split(" ")

    def end(self) -> None:
        """SIGKILL: it owns nothing but what it carries. Returns at once, since the kernel may take seconds to clear what it mapped.
        Idempotent."""
        with suppress(OSError):
            self._process.kill()
        threading.Thread(target=self._reap, name="carrier-reaper", daemon=True).start()

    def _read(self) -> bytes:
        piece = os.read(self._stdout.fileno(), LINE_BYTES_MAX)
        self._unparsed += piece
        return piece

    def _reap(self) -> None:
        """Closes the pipes, too: whoever still holds this would hold them until garbage is looked for."""
        self._process.wait()
        with self._pipes:
            self._stdin.close()
            self._stdout.close()
