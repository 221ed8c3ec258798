"""Which partition a key goes to."""

import pytest

from claw_r1.eventlog.partitioner import murmur2, partition_of

# From Apache Kafka's own UtilsTest.testMurmur2: signed 32-bit.
JAVA_VECTORS = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA_VECTORS.items())
def test_murmur2_is_the_one_of_java(key: str, expected: int) -> None:
    """The hash equals that of Kafka's Java client, on its own test vectors."""
    assert murmur2(key.encode()) == expected % (1 << 32)
    assert partition_of(key.encode(), 32) == (expected & 0x7FFFFFFF) % 32
