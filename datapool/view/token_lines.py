"""The ids of a call, prompt and response, and which of them were sampled by which call of its trajectory.

Invariant: ids are compared, text never. What of a prompt an earlier call sampled is known by the edges of prompts, and where
a prompt was written in full, by its beginning with all ids of an earlier call.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from claw_r1.datapool.delta_decoding import resolve_all
from claw_r1.schemas.arrays import ITEM_BYTES, count
from claw_r1.schemas.events import CallCaptured, StepRecord

BASES_TRIED = 8
"""Calls before one whose prompt is written in full that are looked at for being its beginning."""


@dataclass(frozen=True, slots=True)
class SampledStretch:
    """Tokens [start, end) of a line are the first `end - start` of what a call sampled.
    `step`: its row in the pool."""

    step: StepRecord
    call: CallCaptured
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TokenLine:
    """`ids`: packed, of prompt and response. `stretches`: in order, the last one is the call's own."""

    ids: bytes
    prompt_length: int
    stretches: tuple[SampledStretch, ...]
    broken: bool = False
    """A base of the prompt is missing or another, so that the line begins with the response."""


def token_line(
    call_id: str,
    calls: Sequence[str],
    capture: Callable[[str], CallCaptured | None],
    step: Callable[[str], StepRecord | None],
) -> TokenLine | None:
    """The line of a call; None where no tokens were captured, or only part of one. calls: of its trajectory, in order. capture, step: the fact that
    counts, and the row, by call id."""
    reading = _Reading(calls, capture)
    own = reading.capture(call_id)
    if own is None or not (own.prompt.full_length or own.response_ids):
        return None
    prompt = reading.prompt(call_id)
    places = [(own, 0, count(own.response_ids))] if prompt is None else list(reading.stretches(own))[::-1]
    rows = [step(call.call_id) for call, *_ in places]
    stretches = tuple(
        SampledStretch(row, *place) for row, place in zip(rows, places, strict=True) if row is not None and place[2]
    )
    return TokenLine((prompt or b"") + own.response_ids, count(prompt or b""), stretches, broken=prompt is None)


class _Reading:
    """The calls of one trajectory, and of each the prompt put together once."""

    def __init__(self, calls: Sequence[str], capture: Callable[[str], CallCaptured | None]) -> None:
        self._calls, self._fact = calls, capture
        self._prompts: dict[str, bytes] = {}

    def capture(self, call_id: str) -> CallCaptured | None:
        """The fact of a call; None also where its ids are cut, from which nothing can be put together (`ids_malformed`)."""
        call = self._fact(call_id)
        return None if call is None or len(call.response_ids) % ITEM_BYTES else call

    def prompt(self, call_id: str) -> bytes | None:
        """Packed ids of the whole prompt; None where they cannot be put together."""
        if call_id not in self._prompts:
            links = self._links(call_id)
            edges = {link: call.prompt for link, call in links.items()}
            responses = {link: call.response_ids for link, call in links.items()}
            self._prompts |= resolve_all(edges, ITEM_BYTES, responses, self._prompts)
        return self._prompts.get(call_id)

    def stretches(self, own: CallCaptured) -> Iterator[tuple[CallCaptured, int, int]]:
        """Returns the responses of the call and of those before it, the latest first, as far as they stand in the
        call's line."""
        kept = own.prompt.full_length + count(own.response_ids)
        passed: set[str] = set()
        cursor: CallCaptured | None = own
        while cursor is not None and cursor.call_id not in passed:
            passed.add(cursor.call_id)
            start = cursor.prompt.full_length
            end = min(start + count(cursor.response_ids), kept)
            if end > start:
                yield cursor, start, end
            base = cursor.prompt.base_call_id
            kept = min(kept, start if base is None else cursor.prompt.keep)
            cursor = self.capture(base) if base is not None else self._beginning(cursor)

    def _beginning(self, call: CallCaptured) -> CallCaptured | None:
        """The call before it that its prompt, written in full, begins with."""
        before = self._calls[: self._calls.index(call.call_id)] if call.call_id in self._calls else ()
        whole = self.prompt(call.call_id) or b""
        for call_id in reversed(before[-BASES_TRIED:]):
            earlier, prompt = self.capture(call_id), self.prompt(call_id)
            if earlier is not None and prompt is not None and whole.startswith(prompt + earlier.response_ids):
                return earlier
        return None

    def _links(self, call_id: str) -> Mapping[str, CallCaptured]:
        """Captures from a call down its bases, as far as they are here."""
        links: dict[str, CallCaptured] = {}
        cursor: str | None = call_id
        while cursor is not None and cursor not in links and (call := self.capture(cursor)) is not None:
            links[cursor] = call
            cursor = None if cursor in self._prompts else call.prompt.base_call_id
        return links
