"""A real worker on files instead of Kafka, through the real composition root.

usage: supervise.py EVENTS REPORTS [played] (settings come from CLAW_ROLLOUT_*)
EVENTS: one encoded WeightsPublished per line, in hex. REPORTS: one JSON object per report is appended. played: its engine is a
process that plays vLLM. Its carriers are those that a test can hold.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp

from claw_r1.rollout import supervisor
from claw_r1.rollout.app import serve
from claw_r1.rollout.process.server import VllmServer
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.runtime.processes import child
from claw_r1.runtime.processes.reaper import KILL_NOW, reaped
from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import WeightsPublished, WorkerReported

HELD_CARRIER = "tests.rollout.held_carrier"


class FileFeed:
    """A WeightsFeed that follows a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def run(self, on_event: Callable[[WeightsPublished], None], caught_up: asyncio.Event) -> None:
        """Deliver for ever."""
        seen = 0
        while True:
            *lines, _ = self._path.read_text().split("\n")  # the last one may be half written
            for line in lines[seen:]:
                event = decode(bytes.fromhex(line))
                assert isinstance(event, WeightsPublished)
                on_event(event)
            seen = len(lines)
            caught_up.set()
            await asyncio.sleep(0.02)


class FileSink:
    """A ReportSink that appends to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def report(self, event: WorkerReported) -> None:
        """One line."""
        names = ("state", "url", "model", "run_id", "version", "in_flight", "capabilities", "detail", "sync_ms")
        with self._path.open("a") as out:
            out.write(json.dumps({name: getattr(event, name) for name in (*names, "weights_from")}) + "\n")


class PlayedVllm(VllmServer):
    """Starts the script of an engine in vLLM's place."""

    async def start(self) -> None:
        self.secret = "s"  # of a script
        argv = child.module_argv("tests.rollout.scripted_vllm", self.local_url.rpartition(":")[2])
        self._reaper = child.start(reaped(argv), death_signal=KILL_NOW)


async def serve_played(settings: RolloutSettings, feed: FileFeed, sink: FileSink) -> None:
    """`serve`, with a played engine; SIGTERM ends it."""
    stop = supervisor.Stop()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.now.set)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        await supervisor.Supervisor(settings, http, PlayedVllm(settings), feed, sink).run(stop)


if __name__ == "__main__":
    settings = RolloutSettings()  # type: ignore[call-arg]  # all from the environment
    supervisor.CARRIER = HELD_CARRIER  # type: ignore[attr-defined]  # a name that it imports
    start = serve_played if sys.argv[3:] else serve
    asyncio.run(start(settings, FileFeed(Path(sys.argv[1])), FileSink(Path(sys.argv[2]))))
