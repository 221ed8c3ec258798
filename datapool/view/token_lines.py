"""The ids of a call, prompt and response, and which of them were sampled by which call of its trajectory.

Invariant: ids are compared, text never. What of a prompt an earlier call sampled is known by the edges of prompts, and where
a prompt was written in full, by its beginning with all ids of an earlier call.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from claw_r1.datapool.batch.deltas import resolve_all
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.schemas.arrays import ITEM_BYTES, count
from claw_r1.schemas.events import StepRecord, StepTokens, TrajectoryRecord

BASES_TRIED = 8
"""Calls before one whose prompt is written in full that are looked at for being its beginning."""


@dataclass(frozen=True, slots=True)
class SampledStretch:
    """Tokens [start, end) of a line are the first `end - start` of what a call sampled."""

    step: StepRecord
    tokens: StepTokens
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


def token_line(rows: PoolRows, trajectory: TrajectoryRecord, call_id: str) -> TokenLine | None:
    """The line of a call; None where no tokens were captured."""
    reading = _Reading(rows, trajectory)
    own = reading.row(call_id)
    if own is None or not (own.prompt.full_length or own.response_ids):
        return None
    prompt = reading.prompt(call_id)
    places = [(own, 0, count(own.response_ids))] if prompt is None else list(reading.stretches(call_id))[::-1]
    steps = [rows.step(trajectory.group_id, trajectory.trajectory_id, tokens.call_id) for tokens, *_ in places]
    stretches = tuple(
        SampledStretch(step, *place) for step, place in zip(steps, places, strict=True) if step is not None and place[2]
    )
    return TokenLine((prompt or b"") + own.response_ids, count(prompt or b""), stretches, broken=prompt is None)


class _Reading:
    """Token rows of one trajectory, each read once."""

    def __init__(self, rows: PoolRows, trajectory: TrajectoryRecord) -> None:
        self._rows, self._trajectory = rows, trajectory
        self._tokens: dict[str, StepTokens | None] = {}
        self._prompts: dict[str, bytes] = {}

    def row(self, call_id: str) -> StepTokens | None:
        if call_id not in self._tokens:
            row = self._rows.tokens(self._trajectory.group_id, self._trajectory.trajectory_id, call_id)
            self._tokens[call_id] = None if row is None else row.tokens
        return self._tokens[call_id]

    def prompt(self, call_id: str) -> bytes | None:
        """Packed ids of the whole prompt; None where they cannot be put together."""
        if call_id not in self._prompts:
            links = self._links(call_id)
            edges = {link: row.prompt for link, row in links.items()}
            self._prompts |= resolve_all(
                edges, ITEM_BYTES, {link: row.response_ids for link, row in links.items()}, self._prompts
            )
        return self._prompts.get(call_id)

    def stretches(self, call_id: str) -> Iterator[tuple[StepTokens, int, int]]:
        """Returns the responses of the call and of those before it, the latest first, as far as they stand in the
        call's line."""
        own = self.row(call_id)
        assert own is not None  # whoever asks has its row
        kept = own.prompt.full_length + count(own.response_ids)
        passed: set[str] = set()
        cursor: StepTokens | None = own
        while cursor is not None and cursor.call_id not in passed:
            passed.add(cursor.call_id)
            start = cursor.prompt.full_length
            end = min(start + count(cursor.response_ids), kept)
            if end > start:
                yield cursor, start, end
            base = cursor.prompt.base_call_id
            kept = min(kept, start if base is None else cursor.prompt.keep)
            cursor = self.row(base) if base is not None else self._beginning(cursor)

    def _beginning(self, row: StepTokens) -> StepTokens | None:
        """The call before it that its prompt, written in full, begins with."""
        calls = self._trajectory.calls
        before = calls[: calls.index(row.call_id)] if row.call_id in calls else ()
        whole = self.prompt(row.call_id) or b""
        for call_id in reversed(before[-BASES_TRIED:]):
            tokens, prompt = self.row(call_id), self.prompt(call_id)
            if tokens is not None and prompt is not None and whole.startswith(prompt + tokens.response_ids):
                return tokens
        return None

    def _links(self, call_id: str) -> Mapping[str, StepTokens]:
        """Token rows from a call down its bases, as far as they are here."""
        links: dict[str, StepTokens] = {}
        cursor: str | None = call_id
        while cursor is not None and cursor not in links and (row := self.row(cursor)) is not None:
            links[cursor] = row
            cursor = None if cursor in self._prompts else row.prompt.base_call_id
        return links
