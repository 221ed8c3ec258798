"""What people type of a key's terms is read, or refused."""

import pytest

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.keys.terms import aliases_of, checked_word, duration_us, sampling_of


def test_what_people_type_is_read() -> None:
    """Durations, aliases, parameters, names; what is unclear is refused."""
    assert [duration_us(text) // 10**6 for text in ("90s", "15m", "12h", "30d")] == [90, 900, 43_200, 2_592_000]
    assert aliases_of(["claude-*=tiny", "gpt-5 = tiny"]) == {"claude-*": "tiny", "gpt-5": "tiny"}
    assert sampling_of(["temperature=1", "top_p=0.5"]) == {"temperature": 1.0, "top_p": 0.5}
    for read, word in (
        (duration_us, "1.5h"),
        (duration_us, "-1h"),
        (duration_us, ""),
        (duration_us, "3000000d"),  # the year 10240
        (lambda word: aliases_of([word]), "=tiny"),
        (lambda word: sampling_of([word]), "temperature=nan"),
        (lambda word: sampling_of([word]), "temprature=1"),
        (lambda word: sampling_of([word]), "n=2"),
        (lambda word: checked_word(word, "NAME"), "x" * 513),
    ):
        with pytest.raises(CannotRun):
            read(word)
