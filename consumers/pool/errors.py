"""The refusal of a question to the pool, or of an act on it."""

from claw_r1.consumers.errors import ConsumerError


class PoolRefusal(ConsumerError):
    """The request is unclear or impossible: the message gives the remedy."""
