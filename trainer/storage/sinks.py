"""Curves for programs that others know: each batch's metrics go
to a child process, which hands them to its library.

Invariant: no such library can delay or end training.
If it hangs, points wait, then are dropped. If it refuses or
dies: one line in the log, and the run goes on without it.
"""

import json
import queue
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from claw_r1.runtime.processes import child
from claw_r1.schemas.events import BatchTrained
from claw_r1.schemas.json_values import JsonDict
from claw_r1.trainer.config.extras import SINKS
from claw_r1.trainer.storage.async_writer import attempt

if TYPE_CHECKING:
    from claw_r1.trainer.settings import TrainerSettings

log = structlog.get_logger()

MODULE = "claw_r1.trainer.storage.sink_process"
POINTS_MAX = 1000
"""Batches that wait for a sink; beyond them points are dropped."""
PATIENCE_S = 30.0
"""How long a run waits at its end for all sinks to finish."""


def opened(settings: "TrainerSettings") -> list["CurveSink"]:
    """The sinks of a run, beside TensorBoard; without those for whose files the disk has no room."""
    place: JsonDict = {
        "folder": str(settings.out_dir.absolute()),
        "run_id": settings.run_id,
        "project": settings.sinks_project,
        "online": settings.sinks_online,
        "config": settings.model_dump(mode="json"),
    }
    sinks: list[CurveSink] = []
    for name in settings.sinks:
        if name in SINKS:
            with attempt(f"points for {name}"):
                sinks.append(CurveSink(name, place, settings.out_dir / "sinks"))
    return sinks


def close_all(sinks: Sequence["CurveSink"], patience_s: float) -> None:
    """Ends all of them together, within `patience_s`."""
    for sink in sinks:
        sink.finish()
    until_s = time.monotonic() + patience_s
    for sink in sinks:
        sink.close(max(0.0, until_s - time.monotonic()))


def _started(name: str, path: Path) -> "subprocess.Popen[bytes]":
    with path.open("wb") as out:
        return child.start(child.module_argv(MODULE, name), stdin=subprocess.PIPE, stdout=out, stderr=out)


class CurveSink:
    """A sink in its process, behind a bounded queue and a thread
    that writes to its pipe."""

    def __init__(self, name: str, place: JsonDict, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._name = name
        self._log = folder / f"{name}.log"
        self._points: queue.Queue[JsonDict | None] = queue.Queue(POINTS_MAX)
        self._is_told = self._is_closed = False
        self._process = _started(name, self._log)
        self._points.put(place)
        threading.Thread(target=self._carry, name=f"sink {name}", daemon=True).start()

    def write(self, event: BatchTrained) -> None:
        """One more batch: soon there, or dropped. Never waits."""
        point = {"batch": event.sequence, "version": event.version, **event.metrics}
        try:
            self._points.put_nowait(point)
        except queue.Full:
            self._tell("sink_behind", f"{POINTS_MAX} batches wait for it; later ones are dropped")

    def finish(self) -> None:
        """No batch comes any more."""
        with suppress(queue.Full):  # it is killed
            self._points.put_nowait(None)

    def close(self, patience_s: float) -> None:
        """Waits for its end, and ends it. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        has_ended = child.wait(self._process, patience_s)
        code = child.reap(self._process)
        if not has_ended:
            self._tell("sink_not_finished", f"it did not end in {patience_s:.0f} s")
        elif code:
            self._tell("sink_refused", self._last_line())

    def _carry(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            with pipe:
                while (point := self._points.get()) is not None:
                    pipe.write(json.dumps(point).encode() + b"\n")
                    pipe.flush()
        except OSError:  # it reads no more
            if not self._is_closed:
                child.wait(self._process, PATIENCE_S)
                self._tell("sink_refused", self._last_line())

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it ended without a word")

    def _tell(self, event: str, why: str) -> None:
        """One line for each sink, whatever comes after."""
        if not self._is_told:
            self._is_told = True
            log.warning(event, sink=self._name, why=why, log=str(self._log))
