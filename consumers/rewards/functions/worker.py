"""Runs a rule: `python -P -m claw_r1.consumers.rewards.functions.worker SETUP`, started only by `workers.py`.

Invariant: an answer goes over a socket other than stdin, stdout and stderr, and memory shared with the parent names
the current subject and its start before the rule sees it. So whatever the rule does, its parent knows the subject.

A frame is four bytes of length (big endian), then msgpack messages, each after its length.
"""

import asyncio
import ctypes
import importlib
import inspect
import mmap
import os
import resource
import socket
import struct
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

from claw_r1.consumers.rewards.functions.adapters import ADAPTERS, Rule
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.values import ValueRefused, one_line, verdict_of
from claw_r1.runtime.modules import importable

ENTRY_POINTS = "claw.rewards"
LENGTH = struct.Struct(">I")
PROGRESS = struct.Struct("=qd")
"""The subject of the batch that is in work (-1: none), and since when in seconds of the monotonic clock."""
FLUSH_S = 0.005
PR_SET_CHILD_SUBREAPER = 36


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The setup of a worker, as JSON on its command line."""

    rule: str
    """`module:function`, with `trl:` or `verl:` before it, or the name of an entry point."""
    memory_bytes: int
    socket_fd: int
    progress_fd: int
    as_text: bool = False
    """For trl: prompts and completions as strings."""
    scope: str


class RuleResult(msgspec.Struct, frozen=True, array_like=True):
    """The result for one subject, or for the loading (an empty reason: it is ready)."""

    number: int
    values: list[float | None] = []
    detail: str = ""
    spread: float | None = None
    reason: str = ""
    """The reason why there is no verdict."""


class RuleRefused(Exception):
    """The named object is no rule. One line."""


def main(setup: Setup) -> None:
    """Loads the rule, says so, and answers batches until the parent closes the socket."""
    progress = mmap.mmap(setup.progress_fd, PROGRESS.size)
    os.close(setup.progress_fd)
    peer = socket.socket(fileno=setup.socket_fd)
    peer.set_inheritable(False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(
        PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0
    )  # what the rule starts stays ours, so that it can be ended with us
    try:
        rule = load(setup)
    except BaseException as error:  # noqa: BLE001 - of the module, whatever it is: the parent says it
        detail = str(error) if isinstance(error, RuleRefused) else f"{type(error).__name__}: {error}"
        send(peer, [RuleResult(-1, reason="refused", detail=one_line(detail, 500))])
        return
    resource.setrlimit(resource.RLIMIT_AS, (setup.memory_bytes, setup.memory_bytes))
    send(peer, [RuleResult(-1)])
    RuleRunner(peer, rule, progress).serve()


class RuleRunner:
    """One rule, one subject after the other."""

    def __init__(self, peer: socket.socket, rule: Rule, progress: mmap.mmap) -> None:
        self._peer, self._rule, self._progress = peer, rule, progress
        self._pid, self._inode = os.getpid(), os.fstat(peer.fileno()).st_ino
        self._decoder = msgspec.msgpack.Decoder(Judged)

    def serve(self) -> None:
        """Answers go out at the batch's end, and before it when the last ones are 5 ms old."""
        while (frame := receive(self._peer)) is not None:
            answers: list[RuleResult] = []
            flushed_s = time.monotonic()
            for number, subject in enumerate(messages(frame)):
                now_s = time.monotonic()
                if answers and now_s - flushed_s > FLUSH_S:
                    send(self._peer, answers)
                    answers, flushed_s = [], now_s
                PROGRESS.pack_into(self._progress, 0, number, now_s)
                answers.append(self._answer(number, subject))
                if os.getpid() != self._pid or os.fstat(self._peer.fileno()).st_ino != self._inode:
                    os._exit(1)  # a fork of the rule's came back, or the rule closed the way home
            PROGRESS.pack_into(self._progress, 0, -1, 0.0)
            send(self._peer, answers)

    def _answer(self, number: int, subject: bytes) -> RuleResult:
        try:
            judged = self._decoder.decode(subject)
            returned = self._rule(judged)
            if inspect.isawaitable(returned):
                returned = asyncio.run(_awaited(returned))
            values, detail, spread = verdict_of(returned, judged)
            return RuleResult(number, values, detail, spread)
        except ValueRefused as error:
            return RuleResult(number, reason=error.reason, detail=one_line(str(error)))
        except MemoryError:
            return RuleResult(number, reason="memory", detail="MemoryError")
        except (KeyboardInterrupt, SystemExit) as error:
            return RuleResult(number, reason="raised", detail=f"the rule called exit: {error!r:.100}")
        except BaseException as error:  # noqa: BLE001 - of the rule, whatever it is
            return RuleResult(number, reason="raised", detail=described(error))


def described(error: BaseException) -> str:
    """Type, message and place in one line, even where the error's own words raise."""
    try:
        words = str(error)
    except Exception as unspeakable:  # noqa: BLE001 - of the rule
        words = f"<{type(unspeakable).__name__} in its __str__>"
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = f" ({Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno})" if frame else ""
    return one_line(f"{type(error).__name__}: {words}", 1000) + place


def load(setup: Setup) -> Rule:
    """The function that the setup names, adapted to one subject. Raises RuleRefused, and whatever importing raises."""
    kind, _, rest = setup.rule.partition(":")
    adapter = ADAPTERS.get(kind) if ":" in rest else None
    function = named(rest if adapter else setup.rule)
    if not callable(function):
        raise RuleRefused(f"it is no function but {type(function).__name__}")
    if adapter and setup.scope not in adapter.scopes:
        raise RuleRefused(f"{kind}: functions judge {', '.join(adapter.scopes)}, not {setup.scope}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # of some that are written in C
        signature = None
    try:
        if signature:
            signature.bind_partial(**dict.fromkeys(adapter.parameters)) if adapter else signature.bind(None)
    except TypeError as error:
        form = f"{', '.join(adapter.parameters)} by name" if adapter else "one subject"
        raise RuleRefused(f"it does not take {form}: {error}") from error
    needed = [each.name for each in signature.parameters.values() if each.default is each.empty] if signature else []
    if adapter and (absent := [name for name in adapter.absent if name in needed]):
        raise RuleRefused(f"{kind}: it needs {', '.join(absent)}, which only a trainer has: give it a default")
    return adapter.adapt(function, setup.as_text) if adapter else function


def named(rule: str) -> Any:
    """`module:function`, the module also in the working directory; else an entry point of `claw.rewards`."""
    place, _, attribute = rule.partition(":")
    if not attribute:
        points = entry_points(group=ENTRY_POINTS, name=rule)
        if not points:
            raise RuleRefused(f"it is not module:function, and no entry point of {ENTRY_POINTS}")
        return next(iter(points)).load()
    importable()
    value: Any = importlib.import_module(place)
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise RuleRefused(f"{place} has no {attribute}")
        value = getattr(value, part)
    return value


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


def send(peer: socket.socket, answers: list[RuleResult]) -> None:
    """One frame."""
    peer.sendall(frame_of([msgspec.msgpack.encode(answer) for answer in answers]))


def frame_of(parts: list[bytes]) -> bytes:
    """A frame of encoded messages."""
    body = b"".join(piece for part in parts for piece in (LENGTH.pack(len(part)), part))
    return LENGTH.pack(len(body)) + body


def messages(body: bytes) -> list[bytes]:
    """The encoded messages of a frame."""
    parts, at = [], 0
    while at < len(body):
        (length,) = LENGTH.unpack_from(body, at)
        parts.append(body[at + LENGTH.size : at + LENGTH.size + length])
        at += LENGTH.size + length
    return parts


def receive(peer: socket.socket, bytes_max: int | None = None) -> bytes | None:
    """The next frame's body; None at the end, or if its length is too large."""
    head = _exactly(peer, LENGTH.size)
    if head is None or (bytes_max is not None and LENGTH.unpack(head)[0] > bytes_max):
        return None
    return _exactly(peer, LENGTH.unpack(head)[0])


def _exactly(peer: socket.socket, length: int) -> bytes | None:
    data = bytearray(length)
    view = memoryview(data)
    while view:
        count = peer.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return bytes(data)


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Setup))
