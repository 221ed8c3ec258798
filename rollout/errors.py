"""The errors of a rollout worker. CannotStart is the operator's, SourceFailed is retried, the
last two restart vLLM."""


class RolloutError(RuntimeError):
    """Root of this room's errors."""


class CannotStart(RolloutError):
    """Something that the operator must mend, said in one line; nothing was started."""


class SourceFailed(RolloutError):
    """Weights could not be had from one source; the engine serves its old ones, exactly."""


class EngineLost(RolloutError):
    """The engine answered wrongly or not at all at a step that never fails: its state is unknown, so it must go."""


class ServerDied(RolloutError):
    """vLLM ended by itself, or never became healthy."""
