"""What is read of a client's headers, and what a reply's say."""

import pytest

from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.headers import client_headers, reply_headers, version_range
from claw_r1.gateway.paths import Identity
from tests.gateway.house import span


def test_headers_are_read_by_name_only() -> None:
    """Known headers are parsed, broken counters and traces are dropped, everything else is never looked at."""
    read = client_headers(
        [
            (b"x-claw-tags", b"a, b,,c"),
            (b"x-claw-retry-count", b"-1"),
            (b"traceparent", b"nonsense"),
            (b"authorization", b"Bearer s3cret"),
            (b"x-claw-agent", "ü".encode()),
        ],
        None,
    )
    assert (read.tags, read.retry_count, read.traceparent, read.agent) == (("a", "b", "c"), None, None, "ü")
    assert "s3cret" not in repr(read)


@pytest.mark.parametrize("value", [b"x" * 513, b"a\x01b"])
def test_bad_headers_are_refused(value: bytes) -> None:
    """Overlong values and control characters are a bad request, named by header."""
    with pytest.raises(InvalidRequest) as refused:
        client_headers([(b"x-claw-agent", value)], None)
    assert refused.value.param == "x-claw-agent"


def test_policy_version_header() -> None:
    """One version, a range, or several runs; always printable ASCII."""
    assert version_range((span("r", 3, 0, 4),)) == "r/3"
    assert version_range((span("r", 3, 0, 4), span("r", 5, 4, 9))) == "r/3..5"
    assert version_range((span("base", 0, 0, 4), span("r", 1, 4, 9))) == "base/0,r/1"
    values = dict(reply_headers(Identity("☃\u00a0", "a b/ü"), "c", (span("ü", 1, 0, 1),)))
    assert values == {
        b"x-claw-group": b"%E2%98%83%C2%A0",
        b"x-claw-trajectory": b"a%20b/%C3%BC",
        b"x-claw-call-id": b"c",
        b"x-claw-policy-version": b"%C3%BC/1",
    }
