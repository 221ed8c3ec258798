"""The reports of a run for a person: metrics.jsonl, TensorBoard, other sinks, a line per batch.

Invariant: all of it is derived from BatchTrained events. metrics.jsonl is written anew from the log when the run is
resumed, so it has one line per trained batch, whatever was killed when.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

import structlog

from claw_r1.runtime.files import write_atomically
from claw_r1.schemas.events import BatchTrained
from claw_r1.trainer.storage.async_writer import attempt
from claw_r1.trainer.storage.points_file import PointsFile
from claw_r1.trainer.storage.sinks import PATIENCE_S, CurveSink, close_all

log = structlog.get_logger()

HIGHLIGHTS = ("reward", "max_logprob_gap", "staleness_max", "entropy", "kl_k3", "clip_share", "zero_variance_share")


class Reports:
    """Files of one run, open from construction until `close`. What a full disk takes of them is written; none
    of it ends a run."""

    def __init__(
        self, out_dir: Path, trained: Iterable[BatchTrained], sinks: Sequence[CurveSink] = (), *, board: bool = True
    ) -> None:
        """`trained`: the batches that the log holds already, in order. board: TensorBoard's files are written."""
        earlier, path = list(trained), out_dir / "metrics.jsonl"
        self._lines: TextIO | None = None
        with attempt("metrics of earlier batches"):
            out_dir.mkdir(parents=True, exist_ok=True)
            write_atomically(path, "".join(map(line, earlier)))
        with attempt("metrics of all batches"):
            self._lines = path.open("a", buffering=1)
        first = earlier[-1].sequence + 1 if earlier else 0
        self._board = PointsFile(out_dir / "tensorboard", purge_from=first) if board else None
        self._sinks = sinks

    def write(self, event: BatchTrained) -> None:
        """One more batch; on disk when it returns. The line that a full disk does not take, the next start writes from the log."""
        if self._lines is not None:
            with attempt("metrics of a batch"):
                self._lines.write(line(event))
        if self._board is not None:
            with attempt("points of a batch for TensorBoard"):
                self._board.write(event.metrics, event.sequence)
        for sink in self._sinks:
            sink.write(event)
        highlights = {name: round(event.metrics[name], 6) for name in HIGHLIGHTS if name in event.metrics}
        seconds = {name: round(event.metrics.get(name, 0.0), 2) for name in ("wait_s", "train_s")}
        log.info("batch_trained", batch=event.sequence, version=event.version, **highlights, **seconds)

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Waits `patience_s` for the sinks. Idempotent."""
        if self._lines is not None:
            with attempt("metrics of the last batches"):
                self._lines.close()
        close_all(self._sinks, patience_s)


def line(event: BatchTrained) -> str:
    """A line of metrics.jsonl: batch, version, UTC microseconds, then every metric."""
    head = {"batch": event.sequence, "version": event.version, "occurred_at_us": event.envelope.occurred_at_us}
    return json.dumps({**head, **event.metrics}) + "\n"
