"""Why a question to the pool, or an act on it, is refused."""

from claw_r1.consumers.errors import ConsumerError


class PoolRefusal(ConsumerError):
    """What was meant is not clear, or cannot be done: the message says what to do."""
