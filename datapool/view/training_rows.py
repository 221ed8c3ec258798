"""From a view's rows to training rows: the preview's, the exporter's and the dashboard's way to what a batch is made of.

A trainer goes another way, by position into the facts (`trainer/plan/facts.py`); both end in `sequences.rows`.
"""

from collections.abc import Mapping

from claw_r1.datapool.batch.candidates import PooledGroup, PooledTrajectory
from claw_r1.datapool.batch.deltas import resolve_all
from claw_r1.datapool.batch.masks import is_trained, is_young
from claw_r1.datapool.batch.members import trained_members
from claw_r1.datapool.batch.sequences import CallTokens, TrainingRow, call_tokens, rows
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.errors import PromptBroken
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.store import TokenRow
from claw_r1.schemas.arrays import ITEM_BYTES

TokenRows = Mapping[tuple[str, str], TokenRow]


def assemble_rows(
    pool: PoolRows, group: PooledGroup, spec: BatchSpec, run_id: str, version: int | None = None
) -> list[TrainingRow]:
    """Training rows of a group; `TrainingRow.trajectory` is the index into `group.members`. version: which a batch would be
    for; None: no token is too old.

    Raises PromptBroken when the tokens of a trained call are not there any more (its group is being rewritten).
    """
    oldest = None if version is None else spec.oldest_version(version)
    token_rows = pool.tokens_of_group(group.record.group_id)
    chosen = {member.record.trajectory_id for member in trained_members(group, spec)}
    return [
        row
        for index, member in enumerate(group.members)
        if member.record.trajectory_id in chosen
        for row in rows(_calls(token_rows, member, spec, run_id, oldest), index)
    ]


def _calls(
    token_rows: TokenRows, member: PooledTrajectory, spec: BatchSpec, run_id: str, oldest: int | None
) -> list[CallTokens]:
    """Trained calls in order; the others are read, too, because a prompt may be an edge on one of them."""
    tokens = {step.call_id: row for step in member.steps if (row := token_rows.get((step.trajectory_id, step.call_id)))}
    prompts = _prompts(tokens)
    trained: list[CallTokens] = []
    for step in member.steps:
        if not is_trained(step, member, spec) or not is_young(step, oldest):
            continue
        if not step.response_length:  # no ids were captured: the trainer renders its messages
            continue
        if step.call_id not in prompts:
            raise PromptBroken(
                f"tokens of call {step.call_id}, or of a base of its prompt, are not there or not the same",
                step.call_id,
            )
        temperature = step.sampling.temperature if step.sampling and spec.policy == "own" else 1.0
        prompt = prompts[step.call_id]
        trained.append(call_tokens(tokens[step.call_id].tokens, prompt, run_id, temperature, oldest_version=oldest))
    return trained


def _prompts(rows: Mapping[str, TokenRow]) -> dict[str, bytes]:
    """By call id. A prompt that is whole in itself was digested when its row came; any other is, each time."""
    whole_prompts = {call_id: row.tokens.prompt.suffix for call_id, row in rows.items() if row.whole}
    if len(whole_prompts) == len(rows):
        return whole_prompts
    edges = {call_id: row.tokens.prompt for call_id, row in rows.items()}
    responses = {call_id: row.tokens.response_ids for call_id, row in rows.items()}
    return resolve_all(edges, ITEM_BYTES, responses, whole_prompts)
