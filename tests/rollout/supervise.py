"""A real worker on files instead of Kafka, through the real composition root.

usage: supervise.py EVENTS REPORTS (settings come from CLAW_ROLLOUT_*)
EVENTS: one encoded WeightsPublished per line, in hex. REPORTS: one JSON object per report is appended.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

from claw_r1.rollout.app import serve
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import WeightsPublished, WorkerReported


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
            out.write(json.dumps({name: getattr(event, name) for name in names}) + "\n")


if __name__ == "__main__":
    settings = RolloutSettings()  # type: ignore[call-arg]  # all from the environment
    asyncio.run(serve(settings, FileFeed(Path(sys.argv[1])), FileSink(Path(sys.argv[2]))))
