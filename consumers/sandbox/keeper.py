"""The process that starts and watches sandboxes: one thread, no foreign code, one request after the other.

Invariant: it reports only its own observations and those of `inside.first`; a program over a limit is killed with its
namespace before the answer is sent. It stays small, because a fork costs as much as it holds: standard library only.
It ends when its client's end of the socket closes, and its children end with it.

A message is eight bytes of length, then `marshal`; both ends are ours.
"""

import fcntl
import marshal
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from claw_r1.consumers.sandbox import isolation, kernel

WATCH_S = 0.02
REPORT_BYTES_MAX = 1 << 20
LENGTH = struct.Struct(">Q")
PAGE = os.sysconf("SC_PAGE_SIZE")
SOCKET_BYTES = 2 * 212_992
"""The most bytes in one socket's queue: Linux's default, and a message that begins just below it."""
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
TRIAL = {
    "argv": [sys.executable, "-I", "-S", "-c", ""], "env": {}, "files": {}, "cpu_s": 5, "memory_bytes": 1 << 28, "processes": 8, "files_bytes": 1 << 20,
    "output_bytes": 1 << 16, "stdin": b"",
}  # fmt: skip


class Running:
    """One program at work, and what is known of it."""

    def __init__(self, program: Mapping[str, Any], pid: int, pipes: dict[int, str]) -> None:
        self.program, self.pid, self.pipes = program, pid, pipes
        """pipes: descriptor -> which output it is."""
        self.data: dict[str, bytearray] = {name: bytearray() for name in ("stdout", "stderr", "status", "report")}
        self.begun_s = time.monotonic()
        self.reason = ""
        self.memory_bytes = 0

    def stop(self, reason: str) -> None:
        """Kills it, its namespace and all that it started. The first reason stays."""
        self.reason = self.reason or reason
        kernel.kill(self.pid)

    def abandon(self) -> None:
        """Ends it without an outcome."""
        self.stop("killed")
        for descriptor in self.pipes:
            os.close(descriptor)
        os.waitpid(self.pid, 0)

    def take(self, descriptor: int) -> None:
        """Reads a pipe's content."""
        name = self.pipes[descriptor]
        data = os.read(descriptor, 1 << 16)
        if not data:
            del self.pipes[descriptor]
            os.close(descriptor)
            return
        most = REPORT_BYTES_MAX if name in ("report", "status") else self.program["output_bytes"]
        room = most - len(self.data[name])
        self.data[name] += data[:room]
        if len(data) > room:
            self.stop("output")

    def watch(self) -> None:
        """Memory and number of all its processes."""
        pids = kernel.members(self.pid)
        self.memory_bytes = sum(resident(pid) for pid in pids) + queues(self.pid)
        if self.memory_bytes > self.program["memory_bytes"]:
            self.stop("memory")
        elif len(pids) >= self.program["processes"]:
            self.stop("processes")

    def outcome(self) -> dict[str, Any]:
        """After all pipes were closed: waits for the end, which is near."""
        _, _, usage = os.wait4(self.pid, 0)
        kind, value = marshal.loads(bytes(self.data["status"])) if self.data["status"] else ("killed", 0)  # noqa: S302 - `first` wrote it
        cpu_s = usage.ru_utime + usage.ru_stime
        by_signal = os.WTERMSIG(value) if kind == "ended" and os.WIFSIGNALED(value) else 0
        # Tests end when the code's limit ends the code, and may be heard of first: it is killed as over, though it was late.
        spent = cpu_s >= self.program["cpu_s"] and (by_signal == signal.SIGKILL or self.reason == "over")
        if (by_signal == signal.SIGXCPU or spent) and self.reason in ("", "over"):
            self.reason = "cpu"
        return {
            "exit_code": os.WEXITSTATUS(value) if kind == "ended" and os.WIFEXITED(value) else None,
            "signal": by_signal,
            "reason": self.reason or ("refused" if kind == "failed" else "ended" if kind == "ended" else "killed"),
            "detail": str(value) if kind == "failed" else "",
            "stdout": bytes(self.data["stdout"]),
            "stderr": bytes(self.data["stderr"]),
            "report": bytes(self.data["report"]),
            "cpu_s": cpu_s,
            "wall_s": time.monotonic() - self.begun_s,
        }


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; shared memory is counted for each."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def queues(pid: int) -> int:
    """Bytes that the sockets of a network namespace may hold, even those held only by a queued message."""
    try:
        with open(f"/proc/{pid}/net/unix", "rb") as file:
            return (file.read().count(b"\n") - 1) * SOCKET_BYTES
    except OSError:
        return 0


def begin(program: Mapping[str, Any], setup: dict[str, Any], extra: int | None) -> Running:
    """Starts one program. extra: a descriptor that it gets as 3. Raises OSError, and leaves nothing behind then."""
    setup = {**setup, "folder": isolation.working_folder(setup["readable"])}
    with ExitStack() as ours, ExitStack() as theirs:
        given_in = _sealed(program["stdin"])
        theirs.callback(os.close, given_in)
        pipes = {name: _pipe(ours, theirs) for name in ("stdout", "stderr", "status", "report")}
        ends = [given_in, pipes["stdout"][1], pipes["stderr"][1]]
        ends += [] if extra is None else [extra]
        ends += [pipes["report"][1]] if program.get("reports") else []
        sync = _pipe(theirs, theirs)
        pid = kernel.clone(kernel.NAMESPACES)
        if pid == 0:
            os.close(sync[1])
            for read, _ in pipes.values():
                os.close(read)
            isolation.first(program, ends, pipes["status"][1], sync[0], setup)
        try:
            map_users(pid)
            os.write(sync[1], b"+")
        except BaseException:
            kernel.kill(pid)
            os.waitpid(pid, 0)
            raise
        ours.pop_all()
    return Running(program, pid, {read: name for name, (read, _) in pipes.items()})


def _sealed(content: bytes) -> int:
    """Returns a descriptor to read the content from."""
    memory = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(memory, content)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, SEALS)  # it can be opened again, for writing too
        return os.open(f"/proc/self/fd/{memory}", os.O_RDONLY)
    finally:
        os.close(memory)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Returns both ends; each stack closes its own."""
    read, write = os.pipe()
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write


def map_users(pid: int) -> None:
    """Maps the sandbox's users to those outside: root keeps its own number to read root's files, and the code is nobody."""
    root = os.geteuid() == 0
    if not root:
        _write(f"/proc/{pid}/setgroups", "deny")
    for name, own in (("gid_map", os.getegid()), ("uid_map", os.geteuid())):
        both = f"0 {own} 1\n{isolation.USER} {isolation.NOBODY} 1"
        _write(f"/proc/{pid}/{name}", both if root else f"{isolation.USER} {own} 1")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def run(request: Mapping[str, Any], setup: dict[str, Any], client: socket.socket | None = None) -> list[dict[str, Any]]:
    """Runs programs side by side until the last one ends; the others end with it.

    Two programs are joined by a socket, each one's descriptor 3.
    """
    programs = request["programs"]
    running: list[Running] = []
    with ExitStack() as cleanup:  # what began is ended, whatever comes of the rest
        with ExitStack() as joint:
            ends = [joint.enter_context(end) for end in socket.socketpair()] if len(programs) == 2 else []
            for number, program in enumerate(programs):
                running.append(begin(program, setup, ends[number].fileno() if ends else None))
                cleanup.callback(running[-1].abandon)
        attend(running, request["wall_s"], client)
        cleanup.pop_all()
    return [one.outcome() for one in running]


def attend(running: list[Running], wall_s: float, client: socket.socket | None) -> None:
    """Until all pipes of all programs are closed. Raises EOFError when the client is gone."""
    deadline_s = time.monotonic() + wall_s
    while any(one.pipes for one in running):
        owners = {descriptor: one for one in running for descriptor in one.pipes}
        waiting = [*owners, *([client.fileno()] if client else [])]
        ready = select.select(waiting, [], [], WATCH_S)[0]
        for descriptor in ready:
            if descriptor not in owners:  # the client says nothing before it has its answer: it is gone
                raise EOFError
            owners[descriptor].take(descriptor)
        settle(running, late=time.monotonic() > deadline_s, idle=not ready)


def settle(running: list[Running], *, late: bool, idle: bool) -> None:
    """Ends programs over a limit or without a waiting client."""
    main_is_over = "status" not in running[-1].pipes.values()
    broken = any(one.reason for one in running)
    for one in running:
        if not one.pipes:
            continue
        if late:
            one.stop("wall")
        elif one is not running[-1] and main_is_over and not broken and kernel.is_ending(one.pid):
            continue  # of its own limit, perhaps, which its status will say
        elif main_is_over or broken:
            one.stop("" if one is running[-1] and not broken else "over")
        elif idle or time.monotonic() - one.begun_s > WATCH_S:
            one.watch()


def prepare(readable: list[str]) -> tuple[dict[str, Any], str]:
    """Finds out whether this kernel lets a sandbox be made, tried once by running Python; and in words why not (empty:
    it does)."""
    setup = {"readable": readable, "landlock": kernel.landlock_abi(), "root": os.geteuid() == 0}
    if missing := [path for path in readable if not os.path.exists(path)]:
        return setup, f"what the code may read is not there: {', '.join(missing)}"
    try:
        (trial,) = run({"programs": [TRIAL], "wall_s": 10.0}, setup)
    except OSError as error:
        return setup, f"no sandbox can be made here: {error}"
    if trial["exit_code"] == 0:
        return setup, ""
    return setup, f"no sandbox can be made here: {trial['detail'] or f'{sys.executable} {ending(trial)}'}"


def ending(trial: Mapping[str, Any]) -> str:
    """Describes how a program that did not do its work ended, with its own last line."""
    if trial["reason"] != "ended":
        return f"was ended: {trial['reason']}"
    how = f"died of signal {trial['signal']}" if trial["signal"] else f"ended with {trial['exit_code']}"
    last = trial["stderr"].decode(errors="replace").strip().rpartition("\n")[2]
    return f"{how}: {last}" if last else how


def send(peer: socket.socket, message: Any) -> None:
    """One message (Any: whatever marshal takes)."""
    data = marshal.dumps(message)
    peer.sendall(LENGTH.pack(len(data)) + data)


def receive(peer: socket.socket) -> Any:
    """The next message. Raises EOFError when the other end is gone."""
    return marshal.loads(_exactly(peer, LENGTH.unpack(_exactly(peer, LENGTH.size))[0]))  # noqa: S302 - both ends are ours


def _exactly(peer: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        if not (part := peer.recv(min(length - len(data), 1 << 20))):
            raise EOFError
        data += part
    return bytes(data)


def main(descriptor: int) -> None:
    """Answers its client until that is gone."""
    client = socket.socket(fileno=descriptor)
    client.set_inheritable(False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        setup, refusal = prepare(receive(client))
        send(client, refusal)
        while not refusal:
            request = receive(client)
            try:
                answer: Any = run(request, setup, client)
            except OSError as error:
                answer = str(error)
            send(client, answer)
    except (EOFError, ConnectionError):
        pass
