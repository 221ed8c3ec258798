"""Makes training rows from a plan, for the trainer and previews: planned calls are read from the facts by position.

Invariant: a row has the ids planned by digest, prompts that match their calls' digests, and no token that
the model lacks. A plan that violates this has no rows: before it is committed a trainer skips its
groups, afterwards all of it.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from claw_r1.datapool.batch.masks import ID_FLAWS
from claw_r1.datapool.batch.plan import groups_of, is_logged_data
from claw_r1.datapool.batch.sequences import CallTokens, TrainingRow, call_tokens, rendered_tokens, rows
from claw_r1.datapool.delta_decoding import bodies, prompts
from claw_r1.datapool.digests import call_digest
from claw_r1.datapool.errors import FactUnreadable, NotRenderable
from claw_r1.datapool.view.conversations import CallBodies
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.records import Position, Record
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import BatchAssembled, CallCaptured, PlannedStep, PlannedTrajectory


class FactSource(Protocol):
    """`claw_r1.eventlog.kafka.reader.FactLookup`, or a fake."""

    def get(self, positions: Iterable[Position]) -> dict[Position, Record]:
        """Every record asked for. Raises HistoryCut."""


class RenderedCall(NamedTuple):
    """Packed ids."""

    prompt: bytes
    response: bytes


Renderer = Callable[[CallBodies], RenderedCall]
"""Gives ids to a call whose server gave none. Raises NotRenderable."""


def unreadable_groups(
    plan: BatchAssembled, facts: FactSource, vocabulary: int | None, render: Renderer | None = None
) -> dict[str, str]:
    """group_id -> reason of each group of a plan that cannot be read. Each is tried alone, because a look-up finds all or nothing."""
    reasons: dict[str, str] = {}
    for group_id in groups_of(plan):
        own = tuple(trajectory for trajectory in plan.trajectories if trajectory.group_id == group_id)
        try:
            rows_of(replace(plan, trajectories=own), facts, vocabulary, render)
        except FactUnreadable as unreadable:
            reasons[group_id] = unreadable.reason
    return reasons


def rows_of(
    plan: BatchAssembled, facts: FactSource, vocabulary: int | None, render: Renderer | None = None
) -> list[TrainingRow]:
    """Training rows of a plan; `TrainingRow.trajectory` is the index into `plan.trajectories`. Raises FactUnreadable.

    vocabulary: how many tokens the model has; None: nobody knows the model. render: for calls without ids.
    """
    steps = [step for trajectory in plan.trajectories for step in trajectory.steps]
    try:
        records = facts.get({Position.of(step.position) for step in steps})
    except HistoryCut as cut:
        raise FactUnreadable("facts_cut", str(cut)) from cut
    return [
        row
        for index, planned in enumerate(plan.trajectories)
        for row in _rows_in_vocabulary(_calls(planned, records, plan, render), index, vocabulary)
    ]


def _rows_in_vocabulary(calls: Sequence[CallTokens], trajectory: int, vocabulary: int | None) -> list[TrainingRow]:
    """Rows of trained calls. A token beyond the vocabulary would raise in the forward pass, at every restart again."""
    training_rows = rows(calls, trajectory)
    for row in training_rows:
        if not _in_vocabulary(row.ids, vocabulary):
            call_id = next(
                call.call_id
                for call in calls
                if call.call_id in row.call_ids and not _in_vocabulary(array("i", call.whole), vocabulary)
            )
            raise FactUnreadable(
                f"token_unknown: {call_id}",
                f"call {call_id}: its prompt or reply has a token that the model, with {vocabulary}, does not have",
            )
    return training_rows


def _in_vocabulary(ids: "array[int]", vocabulary: int | None) -> bool:
    return vocabulary is None or (min(ids) >= 0 and max(ids) < vocabulary)


def _calls(
    planned: PlannedTrajectory, records: Mapping[Position, Record], plan: BatchAssembled, render: Renderer | None
) -> list[CallTokens]:
    """Trained calls in order. The others are read too, because a prompt may be an edge on one of them."""
    calls = {step.call_id: _call(step, records[Position.of(step.position)]) for step in planned.steps}
    prompt_ids, is_logged = prompts(calls), is_logged_data(plan)
    rendered = _rendered(planned, calls, render) if is_logged else {}
    trained: list[CallTokens] = []
    for step in planned.steps:
        if not step.trained:
            continue
        call = calls[step.call_id]
        if step.call_id in rendered:
            trained.append(rendered[step.call_id])
            continue
        if step.call_id not in prompt_ids:
            raise FactUnreadable(
                f"prompt_mismatch: {step.call_id}",
                f"call {step.call_id}: its prompt has another digest than it says, or a base of it is not planned with it",
            )
        trained.append(
            call_tokens(
                call,
                prompt_ids[step.call_id],
                plan.run_id,
                1.0 if is_logged else call.sampling.temperature,
                step.advantage,
                plan.oldest_version,
            )
        )
    return trained


def _rendered(
    planned: PlannedTrajectory, calls: Mapping[str, CallCaptured], render: Renderer | None
) -> dict[str, CallTokens]:
    """Renders the trained calls whose server gave no ids, by call id."""
    without_ids = [
        step for step in planned.steps if step.trained and ID_FLAWS & {*calls[step.call_id].integrity.missing}
    ]
    requests = bodies(calls) if without_ids else {}
    rendered: dict[str, CallTokens] = {}
    for step in without_ids:
        call = calls[step.call_id]
        try:
            if render is None or step.call_id not in requests:
                raise NotRenderable("nobody can put its request together here")
            ids = render(CallBodies.of(call, requests[step.call_id]))
        except NotRenderable as why:
            raise FactUnreadable(f"not_rendered: {step.call_id}", f"call {step.call_id} has no ids: {why}") from why
        rendered[step.call_id] = rendered_tokens(step.call_id, ids.prompt, ids.response, step.advantage)
    return rendered


def _call(step: PlannedStep, record: Record) -> CallCaptured:
    try:
        event = record.event()
    except UndecodableRecord:
        event = None
    if not isinstance(event, CallCaptured) or call_digest(event) != step.digest:
        raise FactUnreadable(
            f"fact_changed: {step.call_id}",
            f"call {step.call_id}: the fact at {record.position} is not the planned one",
        )
    return event
