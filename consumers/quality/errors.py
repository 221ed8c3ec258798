"""What can be wrong with a panel of scorers."""


class QualityError(Exception):
    """Root of this consumer's errors."""


class ScorerUnknown(QualityError, ValueError):
    """No scorer of that name, and no `module:name` that is one."""
