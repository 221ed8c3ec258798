"""A dead letter: the record as it was, and why it is there."""

import pytest

from claw_r1.eventlog.dead_letters import dead_letter
from claw_r1.eventlog.records import Record
from claw_r1.schemas.topics import LARGEST_RECORD_BYTES

BROKEN = Record("claw.calls", 3, 41, 1, b"g\xff", b"\x00not avro", (("ce_id", b"1"), ("traceparent", b"00-a")))


def test_a_dead_letter_is_the_record_byte_for_byte_with_the_reason() -> None:
    """Key, value and headers are as they were; ours come after them and say what happened where."""
    letter = dead_letter(BROKEN, "malformed_datum", "trailing bytes", reader="streams/0")
    assert (letter.key, letter.value, letter.partition) == (BROKEN.key, BROKEN.value, 3)
    assert tuple(letter.headers[:2]) == BROKEN.headers
    ours = dict(letter.headers[2:])
    assert ours["claw_reason"] == b"malformed_datum"
    assert ours["claw_error"] == b"trailing bytes"
    assert ours["claw_reader"] == b"streams/0"
    assert (ours["claw_source_topic"], ours["claw_source_partition"], ours["claw_source_offset"]) == (
        b"claw.calls",
        b"3",
        b"41",
    )
    assert ours["claw_attempt"] == b"1"


def test_a_letter_that_fails_again_keeps_its_first_failure() -> None:
    """Redriven and failed once more: first source and time stay, the reason is the new one, the attempt counts up."""
    first = dead_letter(BROKEN, "malformed_datum", "x", reader="streams/0")
    redriven = Record("claw.dead-letters", 3, 7, 2, first.key, first.value, tuple(first.headers))
    again = dict(dead_letter(redriven, "fold_bug", "y", reader="streams/1").headers)
    before = dict(first.headers)
    for kept in ("claw_source_topic", "claw_source_offset", "claw_failed_at"):
        assert again[kept] == before[kept]
    assert (again["claw_reason"], again["claw_attempt"]) == (b"fold_bug", b"2")


def test_headers_of_strangers_do_not_break_a_dead_letter() -> None:
    """A foreign claw_attempt that is no number counts as none."""
    odd = Record("claw.calls", 0, 0, 0, None, None, (("claw_attempt", b"many"),))
    assert dict(dead_letter(odd, "empty_value", "", reader="r").headers)["claw_attempt"] == b"1"


@pytest.mark.parametrize("name", ["claw_attempt", "claw_source_topic"])
def test_large_headers_of_strangers_do_not_break_a_dead_letter(name: str) -> None:
    """No letter writer kept so much: a number that Python does not read, or a header that leaves no room for ours."""
    odd = Record("claw.calls", 0, 0, 0, None, None, ((name, b"9" * (LARGEST_RECORD_BYTES - 1000)),))
    letter = dict(dead_letter(odd, "empty_value", "", reader="r").headers)
    assert (letter["claw_attempt"], letter["claw_source_topic"]) == (b"1", b"claw.calls")
