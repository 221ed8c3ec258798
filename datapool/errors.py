"""The errors of facts that decode well."""


class PoolError(Exception):
    """Root of this room's errors."""


class UnusableFact(PoolError, ValueError):
    """The fact contradicts its own contract; retrying cannot help (poison). `reason` is a stable word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RecordOverfull(PoolError):
    """A row would be larger than the log takes."""


class ViewFailed(PoolError):
    """The thread that follows the pool topics died; the view is stale and must not be used."""


class BatchSpecInvalid(PoolError, ValueError):
    """A batch spec cannot be read, or contradicts itself."""


class PromptBroken(PoolError):
    """A prompt cannot be put together from its edge: its base is missing, or length or digest disagree."""


class FactUnreadable(PoolError):
    """A planned call is not in the facts, has other bytes or unknown tokens, or its prompt cannot be assembled.

    `reason`: a stable word, with the call where it is one call's fault.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NotRenderable(PoolError):
    """A call without ids cannot be rendered by the model's chat template."""
