"""Which requests are the same call, and how long their replies are kept."""

import pytest

from claw_r1.gateway.capture.idempotency import Finished, RecentCalls
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.headers import ClientHeaders
from claw_r1.gateway.paths import Identity
from claw_r1.schemas.envelopes import decision_id

WHO = Identity("g", "t")
DONE = Finished(b"reply", [], ())


def recent(window_s: float = 10, entries: int = 100, bytes_max: int = 1000, clock_s=lambda: 0.0) -> RecentCalls:  # type: ignore[no-untyped-def]  # cases of any type
    return RecentCalls(window_s, entries, bytes_max, clock_s)


def keyed(key: str = "k", retry: int | None = None) -> ClientHeaders:
    return ClientHeaders(idempotency_key=key, retry_count=retry)


def retry(count: int) -> ClientHeaders:
    return ClientHeaders(retry_count=count)


def test_key_gives_the_same_call_everywhere() -> None:
    """Two processes that share nothing give one key one call id, and attempts by the client's count."""
    first, second = recent().begin(WHO, keyed(), "d"), recent().begin(WHO, keyed(retry=1), "d")
    assert first.call_id == second.call_id == decision_id("call", "g", "t", "k")
    assert (first.number, second.number) == (0, 1)


def test_attempts_never_repeat_in_a_process() -> None:
    """Attempts count up even when the client always says 0, as SDKs do within one call of theirs."""
    calls = recent()
    assert [calls.begin(WHO, keyed(retry=0), "d").number for _ in range(3)] == [0, 1, 2]
    assert calls.begin(WHO, keyed(retry=7), "d").number == 7
    assert calls.begin(WHO, keyed(), "d").number == 8


def test_retry_without_key_is_found_by_its_body() -> None:
    """A counted retry with the same body is the next attempt of the call."""
    calls = recent()
    first = calls.begin(WHO, retry(0), "d")
    again = calls.begin(WHO, retry(1), "d")
    assert (again.call_id, again.number) == (first.call_id, 1)
    assert calls.begin(WHO, retry(1), "other").call_id != first.call_id


def test_retry_of_one_of_several_equal_calls_is_a_new_call() -> None:
    """Where it cannot be known which call is meant, no reply is repeated."""
    calls = recent()
    for _ in range(2):
        calls.finish(calls.begin(WHO, retry(0), "d"), DONE)
    again = calls.begin(WHO, retry(1), "d")
    assert (again.finished, again.number) == (None, 1)


def test_a_lost_call_is_asked_again_once() -> None:
    """Without key and count; of several equal calls those that came to nothing, the oldest first."""
    calls = recent()
    first, second, third = [calls.begin(WHO, ClientHeaders(), "d") for _ in range(3)]
    calls.finish(third, DONE)
    for attempt in (second, first):
        calls.lost(attempt)
    assert calls.awaits(WHO, "d")
    again = [calls.begin(WHO, ClientHeaders(), "d") for _ in range(3)]
    assert [(attempt.call_id, attempt.number) for attempt in again[:2]] == [(first.call_id, 1), (second.call_id, 1)]
    assert again[2].call_id not in {first.call_id, second.call_id, third.call_id}
    assert not calls.awaits(WHO, "d")


def test_a_lost_reply_is_repeated() -> None:
    """What was captured, and not taken by its client, is not generated again."""
    calls = recent()
    first = calls.begin(WHO, ClientHeaders(), "d")
    calls.finish(first, DONE)
    calls.lost(first)
    again = calls.begin(WHO, ClientHeaders(), "d")
    assert (again.call_id, again.number, again.finished) == (first.call_id, 1, DONE)
    assert calls.begin(WHO, ClientHeaders(), "d").call_id != first.call_id


def test_the_loss_of_an_earlier_attempt_says_nothing() -> None:
    """While its successor is under way, or after the window, equal requests are other calls."""
    now = 0.0
    calls = recent(window_s=10, clock_s=lambda: now)
    first = calls.begin(WHO, ClientHeaders(), "d")
    calls.lost(first)
    second = calls.begin(WHO, ClientHeaders(), "d")
    calls.lost(first)
    assert not calls.awaits(WHO, "d")
    calls.lost(second)
    now = 10.1
    assert not calls.awaits(WHO, "d")
    assert calls.begin(WHO, ClientHeaders(), "d").call_id != first.call_id


def test_key_names_one_body() -> None:
    """A key that comes with another body is refused."""
    calls = recent()
    calls.begin(WHO, keyed(), "d")
    with pytest.raises(InvalidRequest):
        calls.begin(WHO, keyed(), "other")


def test_replies_are_kept_within_the_window() -> None:
    """A finished reply is repeated until its window is over; then the call is made again under the same id."""
    now = 0.0
    calls = recent(window_s=10, clock_s=lambda: now)
    first = calls.begin(WHO, keyed(), "d")
    calls.finish(first, DONE)
    now = 10.0
    assert calls.begin(WHO, keyed(), "d").finished is DONE
    now = 10.1
    late = calls.begin(WHO, keyed(), "d")
    assert (late.finished, late.call_id) == (None, first.call_id)
    assert late.number == 2, "as long as the process knows, no attempt is there twice"


def test_the_window_begins_with_the_reply() -> None:
    """However long a call took, its reply can be had again for the whole window."""
    now = 0.0
    calls = recent(window_s=10, clock_s=lambda: now)
    first = calls.begin(WHO, keyed(), "d")
    now = 100.0
    calls.finish(first, DONE)
    now = 110.0
    assert calls.begin(WHO, keyed(), "d").finished is DONE


def test_a_lane_that_we_made_up_takes_no_room() -> None:
    """Nobody can ask again under an identity that was made for one call: it drives out no reply that can be had again."""
    calls = recent(entries=1)
    calls.finish(calls.begin(WHO, keyed(), "d"), DONE)
    for number in range(3):
        lane = Identity(f"lane-{number}", f"lane-{number}", named=False)
        calls.finish(calls.begin(lane, retry(number), "d"), DONE)
    assert calls.begin(WHO, keyed(), "d").finished is DONE


@pytest.mark.parametrize("last", [0, 1])
def test_the_highest_attempt_is_repeated(last: int) -> None:
    """Of two attempts at once the log counts the higher one, so that one is repeated, whichever ends first."""
    calls = recent()
    attempts = [calls.begin(WHO, keyed(), "d") for _ in range(2)]
    replies = [Finished(b"%d" % number, [], ()) for number in range(2)]
    for number in (1 - last, last):
        calls.finish(attempts[number], replies[number])
        calls.acknowledged(attempts[number], replies[number])
    again = calls.begin(WHO, keyed(), "d")
    assert again.finished is not None
    assert again.finished.body == b"1"


def test_memory_is_bounded() -> None:
    """The oldest entries go when there are too many or their replies too large."""
    by_count, by_bytes = recent(entries=3), recent(bytes_max=12)
    for calls, kept in ((by_count, 3), (by_bytes, 2)):
        for number in range(10):
            calls.finish(calls.begin(WHO, keyed(str(number)), "d"), DONE)
        found = [calls.begin(WHO, keyed(str(number)), "d").finished for number in reversed(range(10))]
        assert [one is DONE for one in found] == [True] * kept + [False] * (10 - kept)
