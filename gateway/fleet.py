"""Several gateway processes on one port: a parent that serves nothing, holds the port, and starts again what died.

Each worker has a listening socket of its own (SO_REUSEPORT: the kernel spreads connections), opened and kept by the
parent. So a worker that dies or restarts resets nobody: connections that were waiting for it wait for its successor.
Workers share no state but the log; each has its own spool, and a successor adopts its predecessor's.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from gateway.serve import bind
from gateway.settings import GatewaySettings

POLL_S = 0.05
STEADY_S = 10.0
RESTART_WAIT_MAX_S = 5.0
STOP_MARGIN_S = 15.0
CANNOT_START = 2
PR_SET_PDEATHSIG = 1
log = structlog.get_logger()


@dataclass
class ServerProcess:
    """One process of the fleet and the socket that outlives it."""

    number: int
    listener: socket.socket
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    restarts: int = 0
    """In a row, without having run for `STEADY_S`."""
    not_before_s: float = 0.0


class Fleet:
    """`run` until a signal; the exit code is that of a single gateway."""

    def __init__(self, settings: GatewaySettings, argv: Sequence[str]) -> None:
        """Binds the port. Raises PortInUse."""
        self._settings, self._argv = settings, list(argv)
        first = bind(settings.host, settings.port, shared=True)
        self._port = int(first.getsockname()[1])
        others = [bind(settings.host, self._port, shared=True) for _ in range(settings.workers - 1)]
        self._workers = [ServerProcess(number, listener) for number, listener in enumerate([first, *others])]
        self._stopping = False

    def run(self) -> int:
        """0: stopped as asked, 2: the workers cannot start."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        for worker in self._workers:
            self._start(worker)
        log.info("gateway_fleet", port=self._port, workers=len(self._workers))
        code = 0
        while not self._stopping and not code:
            time.sleep(POLL_S)
            code = self._look_after()
        self._stop()
        return code

    def _on_signal(self, number: int, frame: object) -> None:  # noqa: ARG002  # the signature of a handler
        self._stopping = True

    def _start(self, worker: ServerProcess) -> None:
        handle = worker.listener.fileno()
        own = ["--workers", "1", "--port", str(self._port), "--instance", f"{self._settings.instance}-{worker.number}"]
        own += ["--listen-fd", str(handle), "--parent-pid", str(os.getpid())]
        if self._settings.metrics_port is not None:
            own += ["--metrics-port", str(self._settings.metrics_port + worker.number)]
        worker.process = subprocess.Popen(
            [sys.executable, "-m", "gateway", *self._argv, *own],
            pass_fds=(handle,),
            start_new_session=True,  # Ctrl-C is for the parent, which tells them
        )
        worker.started_s = time.monotonic()

    def _look_after(self) -> int:
        """Start again what died; non-zero when that is hopeless."""
        now = time.monotonic()
        for worker in self._workers:
            if worker.process is None:
                if now >= worker.not_before_s:
                    self._start(worker)
                continue
            code = worker.process.poll()
            if code is None:
                worker.restarts = 0 if now - worker.started_s > STEADY_S else worker.restarts
                continue
            if code == CANNOT_START and not worker.restarts and now - worker.started_s < STEADY_S:
                return CANNOT_START  # it has said why
            worker.restarts += 1
            wait_s = min(RESTART_WAIT_MAX_S, 0.1 * 2 ** min(worker.restarts - 1, 10))
            worker.process, worker.not_before_s = None, now + (wait_s if worker.restarts > 1 else 0.0)
            log.error("gateway_worker_ended", worker=worker.number, code=code, restart_in_s=worker.not_before_s - now)
        return 0

    def _stop(self) -> None:
        """Workers finish what they have; nobody new is let in."""
        for worker in self._workers:
            worker.listener.close()
        for worker in self._workers:
            if worker.process is not None:
                worker.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._settings.shutdown_grace_s + STOP_MARGIN_S
        for worker in self._workers:
            if worker.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.0, deadline - time.monotonic()))
                worker.process.kill()
                worker.process.wait()


def inherit(handle: int | None, parent_pid: int) -> socket.socket | None:
    """The socket that a parent left to this worker, which from now on ends with its parent. None: there is no parent."""
    if handle is None:
        return None
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:  # it died before we could ask to be told
        raise SystemExit(0)
    return socket.socket(fileno=handle)
