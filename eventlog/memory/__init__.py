"""The log in memory, for tests: the same shapes, positions and errors as the Kafka log, and no client library.

Invariant: what the contract tests say of one log holds for the other. Transaction markers take offsets here too, so
that code which counts records instead of comparing positions fails on either. Only the passing of time is simpler:
acknowledgements come at once, or, while `refusing` is set, never.
"""

from claw_r1.eventlog.memory.log import MemoryLog
from claw_r1.eventlog.memory.writers import MemoryProducer

# What tests take; the way to it is as long as to `claw_r1.eventlog.kafka.log` otherwise.
__all__ = ["MemoryLog", "MemoryProducer"]
