"""The errors that stop a verification before it has a result."""

from claw_r1.consumers.errors import ConsumerError


class PoolMoves(ConsumerError):
    """The pool changed at every look, so that it never was at one offset vector: stop the
    streams, or look again."""


class RunUnknown(ConsumerError):
    """The log holds nothing of the run that was named."""


class OtherFolds(ConsumerError):
    """The pool was folded by another version of the folds than this one."""
