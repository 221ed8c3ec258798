"""Dead letters for the tests of this folder."""

from tests.consumers.pool.letters import dead

__all__ = ["dead"]
