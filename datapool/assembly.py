"""From a view's rows to training rows: the preview's, the exporter's and the dashboard's way to what a batch is made of.

A trainer goes another way, by position into the facts (`trainer/facts.py`); both end in `sequences.rows`.
"""

from array import array
from collections.abc import Mapping
from typing import Protocol

from datapool.batch_spec import BatchSpec
from datapool.errors import PromptBroken
from datapool.selection import PooledGroup, PooledTrajectory, is_trained, trained_members
from datapool.sequences import UNKNOWN_VERSION, CallTokens, Row, rows, whole_prompt
from datapool.store import TokenRow
from schemas.events import CallCaptured, StepTokens

TokenRows = Mapping[tuple[str, str], TokenRow]


class Tokens(Protocol):
    """`datapool.view.PoolView`, or its rows."""

    def tokens_of_group(self, group_id: str) -> TokenRows:
        """Token rows by (trajectory_id, call_id)."""


def assemble_rows(pool: Tokens, group: PooledGroup, spec: BatchSpec, run_id: str) -> list[Row]:
    """Training rows of a group; `Row.trajectory` is the index into `group.members`.

    Raises PromptBroken when the tokens of a trained call are not there any more (its group is being rewritten).
    """
    found = pool.tokens_of_group(group.record.group_id)
    chosen = {member.record.trajectory_id for member in trained_members(group, spec)}
    return [
        row
        for index, member in enumerate(group.members)
        if member.record.trajectory_id in chosen
        for row in rows(_calls(found, member, spec, run_id), index)
    ]


def _calls(found: TokenRows, member: PooledTrajectory, spec: BatchSpec, run_id: str) -> list[CallTokens]:
    """Trained calls in order; the others are read, too, because a prompt may be an edge on one of them."""
    known: dict[str, tuple[bytes, bytes]] = {}
    trained: list[CallTokens] = []
    for step in member.steps:
        row = found.get((step.trajectory_id, step.call_id))
        wanted = is_trained(step, member, spec)
        try:
            prompt = _prompt(row, known)
        except PromptBroken:
            if wanted:
                raise
            continue
        assert row is not None  # or there were no prompt
        known[step.call_id] = (prompt, row.tokens.response_ids)
        if wanted:
            temperature = step.sampling.temperature if step.sampling else 1.0
            trained.append(call_tokens(row.tokens, prompt, run_id, temperature))
    return trained


def _prompt(row: TokenRow | None, known: Mapping[str, tuple[bytes, bytes]]) -> bytes:
    """A prompt that is whole in itself was digested when its row came; any other is, each time.

    known: (prompt, response) of the calls before.
    """
    if row is None:
        raise PromptBroken("the tokens of a call are not there")
    edge = row.tokens.prompt
    if row.whole:
        return edge.suffix
    base = known.get(edge.base_call_id or "")
    return whole_prompt(edge, None if base is None else b"".join(base))


def call_tokens(
    source: CallCaptured | StepTokens, prompt: bytes, run_id: str, temperature: float, advantage: float | None = None
) -> CallTokens:
    """A call as `sequences.rows` takes it. Versions of another run are no versions here."""
    versions = array("q")
    for span in source.spans:
        version = span.version if span.run_id == run_id else UNKNOWN_VERSION
        versions += array("q", [version]) * (span.end - span.start)
    return CallTokens(
        call_id=source.call_id,
        prompt=prompt,
        response=source.response_ids,
        logprobs=array("f", source.response_logprobs),
        versions=versions,
        temperature=temperature,
        advantage=advantage,
    )
