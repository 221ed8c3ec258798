"""What a request to a judge's server came to, other than a reply."""


class Setback(Exception):
    """A request without a reply. Another try may get one, unless it is final."""

    def __init__(self, reason: str, detail: str, *, retry_after_s: float | None = None) -> None:
        """reason: a stable word; detail: a line for people; retry_after_s: what the server asks for."""
        super().__init__(detail)
        self.reason, self.detail, self.retry_after_s = reason, detail, retry_after_s


class ServerRefused(Setback):
    """It answered 4xx: the same request would be refused again."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__("refused", detail)
        self.status = status
