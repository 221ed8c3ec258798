"""The reasons why a worker ends. It never goes on after one of these: a supervisor starts a new one, which reads the
log again."""

from enum import IntEnum

from claw_r1.eventlog.errors import AccessRefused, Fenced


class ExitCode(IntEnum):
    """0 stopped on request, 1 broke, 2 a restart does not help; the others name the cause to an operator."""

    STOPPED = 0
    BROKE = 1
    REFUSED = 2
    FENCED = 3
    STALLED = 4


class StreamsError(Exception):
    """Root of this room's errors."""


class FoldVersionMismatch(StreamsError):
    """The pool on the broker was written by another version of the folds: rebuild it, do not mix."""


class RowOfAnotherVersion(StreamsError):
    """A row of the pool has a schema that this version does not know: a newer version wrote it."""


class StoreFailed(StreamsError):
    """The disk under a partition's rows refuses them: it is full, or broken. The log has them all."""


class PastTarget(StreamsError):
    """A rebuild's end offsets are below the generation's own; folded facts cannot be removed."""


class NotCopartitioned(StreamsError):
    """This worker was given calls and rewards of different partitions; folding half of a group would be wrong."""


def exit_code_of(error: Exception) -> ExitCode:
    """Returns the exit code by which a worker that cannot go on informs its supervisor: fenced, nothing that a new
    start mends, or broken."""
    if isinstance(error, Fenced):
        return ExitCode.FENCED
    is_refused = isinstance(error, FoldVersionMismatch | RowOfAnotherVersion | AccessRefused)
    return ExitCode.REFUSED if is_refused else ExitCode.BROKE
