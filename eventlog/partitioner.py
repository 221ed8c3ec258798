"""The partition of a key: murmur2 as in Kafka's Java clients, Faust, Connect and librdkafka's `murmur2_random`.

Invariant: every producer of ours agrees with this function, so all records of a key lie in one partition number.
"""

from functools import lru_cache

SEED = 0x9747B28C
MIXER = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Murmur2 of `data` as an unsigned 32-bit number (org.apache.kafka.common.utils.Utils.murmur2 prints it signed)."""
    h = SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * MIXER & MASK
        k = (k ^ k >> 24) * MIXER & MASK
        h = h * MIXER & MASK ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * MIXER & MASK
    h = (h ^ h >> 13) * MIXER & MASK
    return h ^ h >> 15


@lru_cache(maxsize=65_536)
def partition_of(key: bytes, partitions: int) -> int:
    """The partition of `key` in a topic of `partitions` partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
