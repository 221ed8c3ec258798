"""One vLLM server as a child process: started with a fresh secret, healthy by a deadline, gone when this says so."""

import asyncio
import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import IO

import structlog

from rollout.command import arguments, environment
from rollout.errors import ServerDied
from rollout.settings import RolloutSettings
from schemas.runtime.reaper import KILL_NOW

log = structlog.get_logger()

KILL_TIMEOUT_S = 3.0


class VllmServer:
    """Start, watch, stop; may be started again after `stop`. Start it from the main thread: see schemas.runtime.reaper."""

    def __init__(self, settings: RolloutSettings) -> None:
        self._settings = settings
        self._port = settings.port or free_port(settings.host)
        self._keeper: asyncio.subprocess.Process | None = None
        self.secret = ""

    @property
    def local_url(self) -> str:
        """Where this process reaches vLLM."""
        return f"http://{self._settings.host}:{self._port}"

    @property
    def url(self) -> str:
        """Where others reach vLLM."""
        return f"http://{self._settings.advertise_host or self._settings.host}:{self._port}"

    async def start(self) -> None:
        """Spawn; returns before vLLM is healthy."""
        self.secret = secrets.token_urlsafe(32)
        command = [
            sys.executable,
            "-m",
            "schemas.runtime.reaper",
            str(os.getpid()),
            *arguments(self._settings, self._port),
        ]
        output = _open_log(self._settings.log_file)
        try:
            self._keeper = await asyncio.create_subprocess_exec(
                *command,
                env=environment(self._settings, self.secret, os.environ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in a terminal is for us; we stop vLLM in our own order
            )
        finally:
            if output is not sys.stderr:
                output.close()
        log.info("vllm_started", pid=self._keeper.pid, url=self.local_url)

    async def wait_exit(self) -> int:
        """The exit code of the server that was started last, when it has ended."""
        if self._keeper is None:
            raise ServerDied("vLLM was not started")
        return await self._keeper.wait()

    async def stop(self, *, politely: bool = True) -> None:
        """End every process of the server: SIGTERM and `stop_timeout_s` where `politely`, then SIGKILL."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        steps = [(signal.SIGTERM, self._settings.stop_timeout_s)] if politely else []
        for number, timeout_s in [*steps, (KILL_NOW, KILL_TIMEOUT_S), (signal.SIGKILL, KILL_TIMEOUT_S)]:
            if keeper.returncode is not None or await _ends_after(keeper, number, timeout_s):
                return


async def _ends_after(process: asyncio.subprocess.Process, number: signal.Signals, timeout_s: float) -> bool:
    try:
        process.send_signal(number)
        await asyncio.wait_for(process.wait(), timeout_s)
    except ProcessLookupError:
        return True
    except TimeoutError:
        log.warning("vllm_ignores_signal", signal=number.name, timeout_s=timeout_s)
        return False
    return True


def _open_log(path: Path | None) -> IO[str]:
    if path is None:
        return sys.stderr
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a", encoding="utf-8")


def free_port(host: str) -> int:
    """A port that is free now. vLLM binds it seconds later; a thief in between shows as a server that dies."""
    with socket.create_server((host, 0)) as listener:
        return int(listener.getsockname()[1])
