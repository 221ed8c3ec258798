"""One vLLM server as a child process: started with a fresh secret, healthy by a deadline,
gone when this says so."""

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import structlog

from claw_r1.rollout.errors import ServerDied
from claw_r1.rollout.process.activity import Activity, activity_of
from claw_r1.rollout.process.adapter_place import VARIABLE as ADAPTER_VARIABLE
from claw_r1.rollout.process.adapter_place import AdapterPlace
from claw_r1.rollout.process.command import arguments, environment
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.runtime.processes import child
from claw_r1.runtime.processes.reaper import KILL_NOW, reaped
from claw_r1.schemas.http import family_of, url_host

log = structlog.get_logger()

KILL_TIMEOUT_S = 3.0
KILLED = (128 + signal.SIGKILL, -signal.SIGKILL)
"""The exit codes of a reaper whose command was killed, and of one that was killed itself."""


class VllmServer:
    """Start, watch, stop; may be started again after `stop`. It ends with the thread that
    starts it: the main thread."""

    def __init__(self, settings: RolloutSettings) -> None:
        self._settings = settings
        self._port = settings.port or free_port(settings.host)
        self._reaper: subprocess.Popen[bytes] | None = None
        self.secret = ""
        self.adapter = AdapterPlace() if settings.lora_rank_max else None

    @property
    def local_url(self) -> str:
        """The address at which this process reaches vLLM."""
        return f"http://{url_host(self._settings.host)}:{self._port}"

    @property
    def url(self) -> str:
        """The address at which others reach vLLM."""
        return f"http://{url_host(self._settings.advertise_host or self._settings.host)}:{self._port}"

    async def start(self) -> None:
        """Spawn; returns before vLLM is healthy. Raises ServerDied where the disk has no room for what it begins with."""
        self.secret = secrets.token_urlsafe(32)
        own = environment(self._settings, self.secret, os.environ)
        if self.adapter is not None:
            try:
                self.adapter.clear()
            except OSError as error:
                raise ServerDied(f"{self.adapter.path}: {error}") from error
            own[ADAPTER_VARIABLE] = str(self.adapter.path)
        command = reaped(arguments(self._settings, self._port))
        output = open_log(self._settings.log_file)
        try:
            self._reaper = child.start(
                command,
                death_signal=KILL_NOW,
                env=own,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        finally:
            if output is not sys.stderr:
                output.close()
        log.info("vllm_started", pid=self._reaper.pid, url=self.local_url)

    def activity(self) -> Activity:
        """Returns the activity of the server that was started last."""
        return activity_of(self._reaper.pid, self._settings.log_file) if self._reaper else Activity(0.0, 0)

    async def wait_exit(self) -> int:
        """The exit code of the server that was started last, when it has ended."""
        if (reaper := self._reaper) is None:
            raise ServerDied("vLLM was not started")
        await child.ended(reaper)
        return child.reap(reaper)

    async def stop(self, *, politely: bool = True) -> None:
        """End every process of the server: SIGTERM and `stop_timeout_s` where `politely`, then SIGKILL."""
        reaper, self._reaper = self._reaper, None
        if reaper is not None:
            steps = [(signal.SIGTERM, self._settings.stop_timeout_s)] if politely else []
            code = await asyncio.to_thread(child.end, reaper, *steps, (KILL_NOW, KILL_TIMEOUT_S))
            if politely and code in KILLED:
                log.warning("vllm_killed", why="it did not stop in time", timeout_s=self._settings.stop_timeout_s)


def open_log(path: Path | None) -> IO[str]:
    """stderr, where there is no path."""
    if path is None:
        return sys.stderr
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a", encoding="utf-8")


def listening(host: str, port: int) -> socket.socket:
    """A socket there, of the family that the address has. Raises OSError."""
    return socket.create_server((host, port), family=family_of(host))


def free_port(host: str) -> int:
    """A port that is free now. vLLM binds it seconds later; a thief in between shows as a server that dies."""
    with listening(host, 0) as listener:
        return int(listener.getsockname()[1])
