"""`claw pool batch`: what the next batch of a spec would be, and why each other group is not in it. It writes nothing."""

from pathlib import Path
from typing import Any

import orjson

from claw.errors import CannotRun
from claw.pool_reading import asked_of, open_pool
from datapool.assembly import assemble_rows
from datapool.plan import Selection, select
from datapool.rows import PoolRows
from datapool.runs import RunIndex
from datapool.selection import PooledGroup, is_trained, trained_members
from datapool.sequences import Row
from datapool.why import Asked


def preview(*, spec_file: Path | None, run_id: str | None, version: int | None, prefix: str, as_json: bool) -> int:
    """Prints the preview; exit code 1 when the batch is not complete. Raises CannotRun without a spec."""
    with open_pool(prefix) as pool:
        runs = pool.runs()
        asked = asked_of(pool, runs, spec_file=spec_file, run_id=run_id, version=version)
        if asked is None:
            raise CannotRun("no run has a spec yet: name one by --spec FILE")
        shown = pool.view.ask(lambda rows: previewed(rows, runs, asked))
    print(orjson.dumps(shown).decode() if as_json else as_text(shown))
    return 0 if shown["complete"] else 1


def previewed(rows: PoolRows, runs: RunIndex, asked: Asked) -> dict[str, Any]:  # JSON
    """Counts of the batch that would be chosen now, and a reason for each group that is not in it."""
    run = runs.runs.get(asked.run_id)
    settled = run.settled if run else set()
    selection = select(rows, asked.spec, asked.version, asked.run_id, settled)
    reasons = {**selection.left_out, **selection.skipped, **_others(rows, runs, asked, selection)}
    return {
        "run_id": asked.run_id,
        "version": asked.version,
        "algorithm": asked.spec.algorithm,
        "complete": selection.complete,
        "groups_wanted": asked.spec.groups_per_batch,
        **counts(rows, selection.chosen, asked),
        "chosen": [group.record.group_id for group in selection.chosen],
        "left_out": dict(sorted(reasons.items())),
    }


def _others(rows: PoolRows, runs: RunIndex, asked: Asked, selection: Selection) -> dict[str, str]:
    """Groups that selection does not speak of: settled by the run, or with rows of different moments."""
    spoken = (
        {group.record.group_id for group in selection.chosen} | selection.left_out.keys() | selection.skipped.keys()
    )
    others = (record.group_id for record in rows.group_rows() if record.group_id not in spoken)
    return {group_id: _settled(runs, asked.run_id, group_id) for group_id in others}


def _settled(runs: RunIndex, run_id: str, group_id: str) -> str:
    for batch in runs.planned(group_id):
        if batch.run_id == run_id:
            return f"planned_in_batch_{batch.sequence}"
    skipped = runs.skipped(group_id).get(run_id)
    return "rows_changing" if skipped is None else f"skipped: {skipped}"


def counts(rows: PoolRows, chosen: tuple[PooledGroup, ...], asked: Asked) -> dict[str, int]:
    """Sizes of a batch; `tokens_saved` is what its calls would take one by one less what its rows take."""
    made: list[Row] = []
    for group in chosen:
        made += assemble_rows(rows, group, asked.spec, asked.run_id)
    members = [member for group in chosen for member in trained_members(group, asked.spec)]
    trained = [step for member in members for step in member.steps if is_trained(step, asked.spec)]
    one_by_one = sum(step.prompt_length + step.response_length for step in trained)
    in_rows = sum(map(len, made))
    return {
        "groups": len(chosen),
        "trajectories": sum(len(group.members) for group in chosen),
        "trajectories_trained": len(members),
        "responses_trained": len(trained),
        "response_tokens": sum(row.trained_tokens for row in made),
        "rows": len(made),
        "row_tokens": in_rows,
        "tokens_saved": one_by_one - in_rows,
    }


def as_text(shown: dict[str, Any]) -> str:  # JSON
    """The preview on a few lines."""
    whole = "complete" if shown["complete"] else "not complete"
    head = f"run {shown['run_id']} at version {shown['version']}, {shown['algorithm']}: "
    size = f"  {shown['trajectories_trained']} of {shown['trajectories']} trajectories trained, "
    lines = [
        head + f"{shown['groups']} of {shown['groups_wanted']} groups, {whole}",
        size + f"{shown['responses_trained']} responses of {shown['response_tokens']} tokens",
        f"  {shown['rows']} rows of {shown['row_tokens']} tokens; shared prefixes save {shown['tokens_saved']}",
    ]
    lines += [f"  chosen    {group_id}" for group_id in shown["chosen"]]
    return "\n".join(lines + [f"  left out  {group_id}  {reason}" for group_id, reason in shown["left_out"].items()])
