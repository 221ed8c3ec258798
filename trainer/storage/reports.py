"""The reports of a run for a person: metrics.jsonl, TensorBoard, other sinks, a line per batch.

Invariant: all of it is derived from BatchTrained events. metrics.jsonl is written anew from the log when the run is
resumed, so it has one line per trained batch, whatever was killed when.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from claw_r1.runtime.files import write_atomically
from claw_r1.schemas.events import BatchTrained
from claw_r1.trainer.storage.sinks import PATIENCE_S, CurveSink, close_all

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

log = structlog.get_logger()

HIGHLIGHTS = ("reward", "max_logprob_gap", "staleness_max", "entropy", "kl_k3", "clip_share", "zero_variance_share")


class Reports:
    """Files of one run, open from construction until `close`."""

    def __init__(
        self, out_dir: Path, trained: Iterable[BatchTrained], sinks: Sequence[CurveSink] = (), *, board: bool = True
    ) -> None:
        """`trained`: the batches that the log holds already, in order. board: TensorBoard's files are written."""
        earlier = list(trained)
        out_dir.mkdir(parents=True, exist_ok=True)
        path = out_dir / "metrics.jsonl"
        write_atomically(path, "".join(map(line, earlier)))
        self._lines = path.open("a", buffering=1)
        first = earlier[-1].sequence + 1 if earlier else 0
        self._board = _board(out_dir / "tensorboard", purge_from=first) if board else None
        self._sinks = sinks

    def write(self, event: BatchTrained) -> None:
        """One more batch; on disk when it returns. What a full disk does not take, the next start writes from the log."""
        try:
            self._lines.write(line(event))
            if (board := self._board) is not None:
                for name, value in event.metrics.items():
                    board.add_scalar(f"train/{name}", value, event.sequence)
                board.flush()
        except OSError as error:
            log.error("not_written", name="metrics of a batch", error=str(error))
        for sink in self._sinks:
            sink.write(event)
        highlights = {name: round(event.metrics[name], 6) for name in HIGHLIGHTS if name in event.metrics}
        seconds = {name: round(event.metrics.get(name, 0.0), 2) for name in ("wait_s", "train_s")}
        log.info("batch_trained", batch=event.sequence, version=event.version, **highlights, **seconds)

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Waits `patience_s` for the sinks. Idempotent."""
        self._lines.close()
        if self._board is not None:
            self._board.close()
        close_all(self._sinks, patience_s)


def line(event: BatchTrained) -> str:
    """A line of metrics.jsonl: batch, version, UTC microseconds, then every metric."""
    head = {"batch": event.sequence, "version": event.version, "occurred_at_us": event.envelope.occurred_at_us}
    return json.dumps({**head, **event.metrics}) + "\n"


def _board(folder: Path, purge_from: int) -> "SummaryWriter":
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=purge_from)
