"""Processes that run one rule, each watched by a thread: a subject that hangs, exits or eats memory costs itself.

Invariant: every subject gets an answer or GaveUp, whatever the rule does to its process: the process is killed with all that it
started, the subject whose work that was pays, and the others of its batch go to a new process.
"""

import mmap
import os
import queue
import select
import socket
import struct
import subprocess
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import psutil

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.functions.worker import PROGRESS, RuleResult, Setup, frame_of, messages, receive
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.scorer import GaveUp, Opinion
from claw_r1.runtime.errors import describe_exit
from claw_r1.runtime.processes.child import has_ended, module_argv, reap, start

BATCH_MAX = 64
BATCH_BYTES_MAX = 4 << 20
ANSWERS_BYTES_MAX = 64 << 20
"""The largest frame: a larger one is none of ours."""
START_S = 60.0
"""For loading the rule's module."""
ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH")
"""The variables of our environment that a worker sees, beside the ones that its settings name: none holds a
key."""
RESULTS = msgspec.msgpack.Decoder(RuleResult)  # one, made as this is imported: see `PREPARED` of schemas/codec.py
MARK = "RULE_WORKER"
"""Variable by which a process is known that outlived the worker, when it is no longer its child."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """The limits of one process."""

    timeout_s: float
    memory_bytes: int
    environment: tuple[str, ...] = ()
    """Names of further variables that it sees."""


class UntrueProgress(Exception):
    """The rule overwrote the shared start time of its subject, so no deadline would end it."""


@dataclass(slots=True)
class _Task:
    """A subject on its way."""

    subject: bytes
    future: "Future[Opinion]"


class WorkerPool:
    """`RewardScorer` of rules. Used by one thread; `judge` returns at once."""

    def __init__(
        self, rule: str, scope: str, limits: WorkerLimits, processes: int = 1, *, as_text: bool = False
    ) -> None:
        """Loads the rule in a first process. Raises ConsumerError, in one line, where that fails."""
        self._setup = Setup(
            rule=rule, scope=scope, memory_bytes=limits.memory_bytes, socket_fd=-1, progress_fd=-1, as_text=as_text
        )
        self._limits, self._processes = limits, processes
        self._batches: queue.SimpleQueue[list[_Task] | None] = queue.SimpleQueue()
        self._encoder = msgspec.msgpack.Encoder()
        self._closed = threading.Event()
        first: Future[None] = Future()
        self._threads = [self._thread(number, first if number == 0 else None) for number in range(processes)]
        self._threads[0].start()
        try:
            first.result()
        except BaseException:
            self.close()
            raise
        for thread in self._threads[1:]:
            thread.start()

    def judge(self, subjects: Sequence[Judged]) -> Sequence["Future[Opinion]"]:
        """See `RewardScorer`."""
        futures: list[Future[Opinion]] = [Future() for _ in subjects]
        size_max = min(BATCH_MAX, -(-len(subjects) // self._processes) or 1)
        batch: list[_Task] = []
        size = 0
        for judged, future in zip(subjects, futures, strict=True):
            try:
                subject = self._encoder.encode(judged)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                future.set_exception(GaveUp("unreadable", f"the subject cannot be written down: {error}"))
                continue
            if batch and (len(batch) >= size_max or size + len(subject) > BATCH_BYTES_MAX):
                self._batches.put(batch)
                batch, size = [], 0
            batch.append(_Task(subject, future))
            size += len(subject)
        if batch:
            self._batches.put(batch)
        return futures

    def close(self) -> None:
        """Kills the processes. Pending tasks are cancelled, or raise CancelledError: this is no verdict of the rule."""
        self._closed.set()
        for _ in self._threads:
            self._batches.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        with suppress(queue.Empty):
            while True:
                for task in self._batches.get_nowait() or ():
                    task.future.cancel()

    def _thread(self, number: int, first: "Future[None] | None") -> threading.Thread:
        return threading.Thread(target=self._drive, args=(first,), name=f"rule-{number}", daemon=True)

    def _drive(self, first: "Future[None] | None") -> None:
        """The life of one process and its successors. They are this thread's children: the kernel ends them with it."""
        worker = _Worker(self._setup, self._limits, self._closed)
        try:
            if first is not None:
                try:
                    worker.open()
                except BaseException as error:  # noqa: BLE001 - goes to whoever opened
                    first.set_exception(error)
                    return
                first.set_result(None)
            while (batch := self._batches.get()) is not None and not self._closed.is_set():
                try:
                    worker.judge(batch)
                except BaseException as error:  # noqa: BLE001 - a bug, or a rule that loads no more: ends the consumer
                    for task in batch:
                        if not task.future.done():
                            task.future.set_exception(error)
        finally:
            worker.kill()


class _Worker:
    """One process at a time. Belongs to one thread."""

    def __init__(self, setup: Setup, limits: WorkerLimits, closed: threading.Event) -> None:
        self._setup, self._limits, self._closed = setup, limits, closed
        self._process: subprocess.Popen[Any] | None = None
        self._peer: socket.socket | None = None
        self._progress: mmap.mmap | None = None
        self._mark = uuid.uuid4().hex

    def open(self) -> None:
        """A process with the rule loaded. Raises ConsumerError."""
        ours, theirs = socket.socketpair()
        progress_fd = os.memfd_create("claw-rule")
        os.ftruncate(progress_fd, PROGRESS.size)
        self._progress = mmap.mmap(progress_fd, PROGRESS.size)
        setup = msgspec.structs.replace(self._setup, socket_fd=theirs.fileno(), progress_fd=progress_fd)
        argv = module_argv("claw_r1.consumers.rewards.functions.worker", msgspec.json.encode(setup).decode())
        try:
            self._process = start(
                argv,
                env={**clean_environment(os.environ, self._limits.environment), MARK: self._mark},
                pass_fds=(theirs.fileno(), progress_fd),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        finally:
            theirs.close()
            os.close(progress_fd)
        self._peer = ours
        deadline_s = time.monotonic() + START_S
        if (frame := self._receive(deadline_s)) is None:
            late = time.monotonic() >= deadline_s
            code = self.kill()
            if self._closed.is_set():
                raise CancelledError("the scorer was closed")
            how = f"took longer than {START_S:g} s" if late else f"ended its process {describe_exit(code)}"
            raise ConsumerError(f"{self._setup.rule}: loading it {how}")
        if (answer := RESULTS.decode(messages(frame)[0])).reason:
            self.kill()
            raise ConsumerError(f"{self._setup.rule}: {answer.detail}")

    def judge(self, batch: list[_Task]) -> None:
        """Answers all of a batch."""
        batches = deque([[task for task in batch if task.future.set_running_or_notify_cancel()]])
        while batches:
            if self._closed.is_set():
                raise CancelledError("the scorer was closed")
            if not (tasks := batches.popleft()):
                continue
            if self._process is None:
                self.open()
            batches.extend(self._tried(tasks))

    def _tried(self, tasks: list[_Task]) -> list[list[_Task]]:
        """Gives the tasks to one process, and returns those without a result, for the next process.

        The subject in work at a deadline fails. If the process ended, or sent an invalid answer, any of them,
        even an earlier one, may be the cause: each is tried again alone, and fails if it ends its process.
        """
        assert self._progress is not None
        PROGRESS.pack_into(self._progress, 0, 0, time.monotonic())
        open_numbers = set(range(len(tasks)))
        fatal = self._exchange(tasks, open_numbers)
        if fatal is None:
            return []
        at, _ = PROGRESS.unpack_from(self._progress)
        code = self.kill()
        if self._closed.is_set():  # nothing was judged, and nothing is to be said of it
            raise CancelledError("the scorer was closed")
        if not fatal and len(tasks) > 1:
            return [[tasks[number]] for number in sorted(open_numbers)]
        number = at if at in open_numbers else min(open_numbers)
        reason, detail = fatal or ("crashed", f"the rule's process ended {describe_exit(code)}")
        tasks[number].future.set_exception(GaveUp(reason, detail))
        return [[tasks[other] for other in sorted(open_numbers - {number})]]

    def _exchange(self, tasks: list[_Task], open_numbers: set[int]) -> tuple[str, str] | tuple[()] | None:
        """None: all answered. Else why the process has to go: reason and detail; empty: it ended."""
        assert self._peer is not None
        try:
            self._peer.settimeout(START_S)
            self._peer.sendall(frame_of([task.subject for task in tasks]))
            while open_numbers:
                if not self._wait():
                    return ("deadline", f"no answer within {self._limits.timeout_s:g} s")
                if (frame := receive(self._peer, ANSWERS_BYTES_MAX)) is None:
                    return ()
                for message in messages(frame):
                    answer = RESULTS.decode(message)
                    open_numbers.remove(answer.number)
                    _settle(tasks[answer.number].future, answer)
        except (OSError, KeyError, struct.error, msgspec.DecodeError, UntrueProgress):
            return ()
        return None

    def _wait(self) -> bool:
        """Waits until something can be read; False when the subject in work is over its deadline, or at closing. Raises
        UntrueProgress."""
        assert self._peer is not None
        assert self._progress is not None
        while not self._closed.is_set():
            _, since_s = PROGRESS.unpack_from(self._progress)
            left_s = (since_s or time.monotonic()) + self._limits.timeout_s - time.monotonic()
            if not left_s <= 2 * self._limits.timeout_s:  # a NaN, too
                raise UntrueProgress
            if select.select([self._peer], [], [], min(max(left_s, 0.0), 0.2))[0]:
                return True
            if left_s <= 0 and PROGRESS.unpack_from(self._progress)[1] == since_s:
                return False
        return False

    def _receive(self, deadline_s: float) -> bytes | None:
        assert self._peer is not None
        while time.monotonic() < deadline_s and not self._closed.is_set():
            if select.select([self._peer], [], [], 0.2)[0]:
                with suppress(OSError):
                    return receive(self._peer)
                return None
        return None

    def kill(self) -> int:
        """The process and all that it started, also what left its group. Returns the exit code."""
        process, self._process = self._process, None
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        if process is None:
            return 0
        descendants: list[psutil.Process] = []
        with suppress(psutil.Error):
            descendants = psutil.Process(process.pid).children(recursive=True)
        if has_ended(process):  # by itself, and what it had started is somebody else's
            descendants += [one for one in psutil.process_iter() if _bears(one, self._mark)]
        code = reap(process)
        for descendant in descendants:
            with suppress(psutil.Error):
                descendant.kill()
        return code


def _bears(process: psutil.Process, mark: str) -> bool:
    with suppress(psutil.Error):
        return bool(process.environ().get(MARK) == mark)
    return False


def _settle(future: "Future[Opinion]", answer: RuleResult) -> None:
    if answer.reason:
        future.set_exception(GaveUp(answer.reason, answer.detail))
    else:
        future.set_result(Opinion(values=tuple(answer.values), detail=answer.detail, spread=answer.spread))


def clean_environment(variables: Mapping[str, str], names: Sequence[str] = ()) -> dict[str, str]:
    """Returns the part of our environment that a worker gets."""
    return {name: variables[name] for name in (*ENVIRONMENT, *names) if name in variables}
