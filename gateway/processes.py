"""Several gateway processes on one port: a parent that serves nothing, holds the port, and restarts dead processes.

Each process has a listening socket of its own (SO_REUSEPORT: the kernel spreads connections), opened and kept by the
parent. So the death or restart of a process resets no connection: those waiting for it wait for its successor.
The processes share no state but the log; each has its own spool, and a successor adopts its predecessor's.
"""

import signal
import socket
from collections.abc import Sequence

import structlog

from claw_r1.gateway.serve import bind
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.runtime.errors import ComponentDied
from claw_r1.runtime.processes.child import module_argv
from claw_r1.runtime.processes.component import Component
from claw_r1.runtime.processes.processes import Processes
from claw_r1.runtime.processes.restarts import UNLIMITED, RestartBudget
from claw_r1.runtime.stop_signals import StopSignals

POLL_S = 0.05
STOP_MARGIN_S = 15.0
CANNOT_START = 2
BUDGET = RestartBudget(UNLIMITED, window_s=10.0, delay_s=0.1)
log = structlog.get_logger()


class GatewayProcesses:
    """`run` until a signal; the exit code is that of a single gateway."""

    def __init__(self, settings: GatewaySettings, argv: Sequence[str]) -> None:
        """Binds the port. Raises PortInUse."""
        self._settings, self._argv = settings, list(argv)
        first = bind(settings.host, settings.port, shared=True)
        self._port = int(first.getsockname()[1])
        others = [bind(settings.host, self._port, shared=True) for _ in range(settings.workers - 1)]
        self._listeners = [first, *others]

    def run(self) -> int:
        """0: stopped as asked, 2: a process cannot start; it has said why."""
        stop, processes = StopSignals(), Processes()
        try:
            for number, listener in enumerate(self._listeners):
                processes.start(self._component(number, listener))
            log.info("gateway_processes", port=self._port, processes=len(self._listeners))
            while not stop.wait(POLL_S):
                processes.poll()
        except ComponentDied as died:
            return died.exit_code
        finally:
            self._stop(processes)
        return 0

    def _component(self, number: int, listener: socket.socket) -> Component:
        options = {"--workers": 1, "--port": self._port, "--instance": f"{self._settings.instance}-{number}"}
        options["--listen-fd"] = listener.fileno()
        if self._settings.metrics_port is not None:
            options["--metrics-port"] = self._settings.metrics_port + number
        flags = [str(word) for option in options.items() for word in option]
        return Component(
            f"gateway-{number}",
            module_argv("claw_r1.gateway", *self._argv, *flags),
            budget=BUDGET,
            death_signal=signal.SIGTERM,  # it finishes what it has, also when the parent is killed
            pass_fds=(listener.fileno(),),
            cannot_start_code=CANNOT_START,
        )

    def _stop(self, processes: Processes) -> None:
        """All processes at once finish what they have; nobody new is let in."""
        for listener in self._listeners:
            listener.close()
        processes.stop(self._settings.shutdown_grace_s + STOP_MARGIN_S, stagger_s=0.0)
