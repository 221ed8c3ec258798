"""The owner of an `out_dir`: a run that finds the batches of another one there writes nothing, neither into
the folder nor to the log."""

import json
from pathlib import Path

from claw_r1.trainer.errors import CheckpointForeign
from claw_r1.trainer.journal.history import History
from claw_r1.trainer.storage.checkpoints import Checkpoint


def check_own(out_dir: Path, newest: Checkpoint | None, history: History) -> None:
    """Raises CheckpointForeign where the log of the run does not know what the folder holds. newest: of its checkpoints."""
    if newest is not None and newest.sequence >= history.sequence_free:
        foreign = f"checkpoint {newest.path.name}"
    elif _is_of_another(out_dir / "metrics.jsonl", history):
        foreign = "metrics.jsonl"
    else:
        return
    run = history.run_id
    raise CheckpointForeign(
        f"{foreign} in {out_dir} is of a batch that run {run} never planned: give run {run} another out_dir (or was the log replaced?)"
    )


def _is_of_another(metrics: Path, history: History) -> bool:
    """Returns whether the last whole line is of a batch that the run did not train then; earlier ones may be cut from the log."""
    try:
        lines = metrics.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    for line in reversed(lines):
        try:
            values = json.loads(line)
            batch, time_us = values["batch"], values["occurred_at_us"]
        except (ValueError, TypeError, KeyError):
            continue  # a kill, or a full disk, cut it
        trained = history.trained.get(batch)
        return trained is None or trained.envelope.occurred_at_us != time_us
    return False
