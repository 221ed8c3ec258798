"""The errors of an agent, by what to do about them."""


class AgentFlowError(Exception):
    """Root of this room's errors."""


class GatewayUnavailable(AgentFlowError):
    """The gateway did not answer for the whole retry budget: start it, or look at its log."""

    def __init__(self, url: str, reason: str, seconds: float) -> None:
        super().__init__(f"no answer from {url} for {seconds:.0f} s: {reason}")
        self.url = url


class RequestRefused(AgentFlowError):
    """The gateway or the engine answered no; the same request would be refused again."""

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(f"HTTP {status}{f' ({code})' if code else ''}: {message}")
        self.status, self.message = status, message
        self.code, self.param = code, param

    def is_of(self, param: str) -> bool:
        """Returns whether the gateway names this part of the request, or a part of it, as what is wrong."""
        return self.param is not None and self.param.partition(".")[0] == param


class RewardRefused(RequestRefused):
    """The gateway refused a reward, which does not count; of several that waited, the first."""


class EpisodeLimitExceeded(AgentFlowError):
    """An episode took more seconds, tokens or calls than it may: it ends as failed, whether its flow catches
    this or not."""


class ToolError(Exception):
    """A tool refuses what the model asked of it; the model reads the message. Any other error of a tool fails
    the episode."""


class MalformedReply(AgentFlowError):
    """An answer that is not what the protocol promises: client and gateway differ in
    version, or it is no gateway."""


class InvalidPlan(AgentFlowError):
    """The request contradicts itself, or an address is none."""


class AgentFailed(AgentFlowError):
    """A black-box agent's command failed: its episode has no outcome."""


class EpisodesFailing(AgentFlowError):
    """So many episodes in a row failed for one reason that the next would, too: fix the cause it names."""

    def __init__(self, episodes: int, reason: str) -> None:
        super().__init__(
            f"{episodes} episodes failed one after the other, and none came to an outcome: {reason}; "
            "--give-up-after 0 plays on whatever fails"
        )


class FlowNotFound(AgentFlowError):
    """The name is that of no AgentFlow."""
