"""Checkpoints of a run on disk: one directory per batch and incarnation, complete or not there.

Invariant: a checkpoint is of a batch whose plan is committed, because a plan is committed before it is trained. The
incarnation is in the name, so that a trainer that was fenced off but does not know it yet overwrites nothing.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from claw_r1.trainer.errors import CheckpointInvalid
from claw_r1.trainer.storage.directories import PartialDirectory, clear_partial, remove

log = structlog.get_logger()
NAME = re.compile(r"(\d{8,})-(\d+)")
WEIGHTS_DIGEST = "weights.sha256"
"""File of a checkpoint: the digest of the weights in it, as their version has it."""


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint:
    """`sequence`: the last batch that is in it."""

    sequence: int
    incarnation: int
    path: Path

    @property
    def weights_digest(self) -> str | None:
        """None: it has none."""
        try:
            return (self.path / WEIGHTS_DIGEST).read_text()
        except (OSError, UnicodeDecodeError):
            return None


class Checkpoints:
    """The checkpoints of one run, in one folder. The `kept` newest stay."""

    def __init__(self, folder: Path, kept: int) -> None:
        self._folder = folder
        self._kept = kept

    def all(self) -> list[Checkpoint]:
        """Every complete checkpoint, oldest first."""
        if not self._folder.is_dir():
            return []
        named = ((NAME.fullmatch(path.name), path) for path in self._folder.iterdir())
        return sorted(Checkpoint(int(match[1]), int(match[2]), path) for match, path in named if match)

    def path(self, sequence: int, incarnation: int) -> Path:
        """Returns the folder of one checkpoint."""
        return self._folder / f"{sequence:08d}-{incarnation}"

    def begin(self, target: Path, save: Callable[[Path], Callable[[], None]]) -> Callable[[], None]:
        """`save` copies a directory's content, and returns the writer of the copy. Raises OSError.

        The returned function writes, in any thread: it names the directory, then deletes checkpoints that are too old.
        """
        partial = PartialDirectory(target)
        try:
            write = save(partial.path)
        except BaseException:
            partial.abandon()
            raise

        def finish() -> None:
            partial.fill(write)
            for old in self.all()[: -self._kept]:
                remove(old.path)

        return finish

    def clear_partial(self) -> None:
        """See `directories.clear_partial`."""
        clear_partial(self._folder)


def load_newest(
    usable: Sequence[Checkpoint], load: Callable[[Checkpoint], object], fatal: type[CheckpointInvalid] | tuple[()] = ()
) -> tuple[Checkpoint | None, dict[Path, CheckpointInvalid]]:
    """Loads the newest checkpoint that can be loaded, if any can; also returns why newer ones cannot. usable: the oldest
    first. Raises what is `fatal`."""
    damages: dict[Path, CheckpointInvalid] = {}
    for checkpoint in reversed(usable):
        try:
            load(checkpoint)
        except fatal:
            raise
        except CheckpointInvalid as damage:
            log.warning("checkpoint_unusable", batch=checkpoint.sequence, error=str(damage))
            damages[checkpoint.path] = damage
        else:
            return checkpoint, damages
    return None, damages
