"""The choice of the tokenizer that reads the ids of a call: the one of the settings, else that of the model of the run
that sampled it."""

import stat
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from claw_r1.consumers.dashboard.tokens.pieces import NoTokenizer, Vocabulary
from claw_r1.datapool.runs import Run, RunsById

KEPT = 4
"""Tokenizers in memory; a large one takes some 100 MB."""
FILE_BYTES_MAX = 256_000_000
"""The largest file of a tokenizer: those of large vocabularies take some 35 MB, and whoever writes runs names any
file."""
CONTEXT = 16
"""Tokens beside a range that are read with it: a character at its edge may begin there."""


class Vocabularies:
    """Tokenizers by folder, each read once. Safe from any thread."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: the only one that counts; None: runs say."""
        self._folder = folder
        self._read: dict[tuple[Path, int], Vocabulary] = {}
        self._lock = threading.Lock()

    def of(self, runs: Iterable[Run]) -> Vocabulary:
        """Returns the vocabulary of the first run that names a model. Raises NoTokenizer."""
        folder = self._folder or next(
            (Path(str(model_dir)) for run in runs if (model_dir := run.config.get("model_dir"))), None
        )
        if folder is None:
            raise NoTokenizer(
                "no run that is known sampled this, so no model is: start the dashboard with --tokenizer DIR"
            )
        file = folder / "tokenizer.json"
        try:
            about = file.stat()
        except (OSError, ValueError):  # ValueError: no name of a file
            raise NoTokenizer(f"there is no {file} on this machine: start the dashboard with --tokenizer DIR") from None
        if not stat.S_ISREG(about.st_mode) or about.st_size > FILE_BYTES_MAX:
            raise NoTokenizer(f"{file} is no file of at most {FILE_BYTES_MAX:,} bytes: --tokenizer DIR names another")
        changed = about.st_mtime_ns
        with self._lock:
            if (folder, changed) not in self._read:
                vocabulary = Vocabulary(folder)
                while len(self._read) >= KEPT:
                    del self._read[next(iter(self._read))]
                self._read[folder, changed] = vocabulary
            return self._read[folder, changed]


def candidates(runs: RunsById, names: Sequence[str], model_id: str) -> list[Run]:
    """Runs of these names, then those of the model, the newest first."""
    of_model = sorted((run for run in runs.values() if run.model_id == model_id), key=lambda run: -run.started_us)
    return [*(runs[name] for name in names if name in runs), *of_model]
