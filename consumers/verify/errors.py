"""What stops a verification before it has an answer. Each message is one line for a person."""


class VerifyError(Exception):
    """Root of this room's errors."""


class PoolMoves(VerifyError):
    """The pool changed at every look, so that it never was at one offset vector: stop the streams, or look again."""


class RunUnknown(VerifyError):
    """The log holds nothing of the run that was named."""


class OtherFolds(VerifyError):
    """The pool was folded by another version than the one that would judge it."""
