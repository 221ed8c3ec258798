"""`claw pool batch`: what the next batch of a spec would be, and why each other group is not in it. It writes nothing."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from claw.errors import CannotRun
from claw.pool.options import PerspectiveOptions
from claw.pool.reading import named_spec, open_pool, perspective_of
from datapool.batch.candidates import PooledGroup, all_equal
from datapool.batch.masks import mask_at
from datapool.batch.members import baseline_only, trained_members
from datapool.batch.selection import Selection, select
from datapool.batch.sequences import TrainingRow
from datapool.errors import PromptBroken
from datapool.view.rows import PoolRows
from datapool.view.runs import RunIndex
from datapool.view.training_rows import assemble_rows
from datapool.view.why import Perspective

CHANGING = "rows_changing"
KINDS = {
    "waits": "may still come",
    "never": "never, for this run",
    "foreign": "of another run or for another spec",
    "settled": "settled by this run",
}


def preview(options: PerspectiveOptions, *, prefix: str, verbose: bool, as_json: bool) -> int:
    """Prints the preview; exit code 1 when the batch is not complete. Raises CannotRun without a spec.

    verbose: with the ids of the groups; JSON has them always.
    """
    spec = named_spec(options)
    with open_pool(prefix, tokens=True) as pool:
        runs = pool.runs()
        perspective = perspective_of(pool, runs, spec, options)
        if perspective is None:
            raise CannotRun("no run has a spec yet: name one by --spec FILE or --preset NAME")
        answer = pool.view.ask(lambda rows: previewed(rows, runs, perspective))
    print(orjson.dumps(answer).decode() if as_json else as_text(answer, verbose=verbose))
    return 0 if answer["complete"] else 1


def previewed(rows: PoolRows, runs: RunIndex, perspective: Perspective) -> dict[str, Any]:  # JSON
    """Counts of the batch that would be chosen now, and a reason for each group that is not in it."""
    run = runs.runs.get(perspective.run_id)
    settled = run.settled if run else set()
    selection, broken = _selected(rows, perspective, settled)
    others = {name: why for name, why in _others(rows, runs, perspective, selection).items() if name not in broken}
    left_out = {**selection.left_out, **{name: CHANGING for name, why in others.items() if why is None}}
    reasons = {
        "waits": {name: why for name, why in left_out.items() if name not in selection.foreign},
        "never": {**selection.skipped, **broken},
        "foreign": {name: left_out[name] for name in selection.foreign},
        "settled": {name: why for name, why in others.items() if why is not None},
    }
    return {
        "run_id": perspective.run_id,
        "version": perspective.version,
        "algorithm": perspective.spec.algorithm,
        "complete": selection.complete,
        "groups_wanted": perspective.spec.groups_per_batch,
        **counts(rows, selection.chosen, perspective),
        "chosen": [group.record.group_id for group in selection.chosen],
        "left_out": dict(sorted({name: why for named in reasons.values() for name, why in named.items()}.items())),
        "reasons": {kind: _counted(named.values()) for kind, named in reasons.items() if named},
    }


def _selected(rows: PoolRows, perspective: Perspective, settled: set[str]) -> tuple[Selection, dict[str, str]]:
    """As a trainer does it: groups whose prompts cannot be put together have that reason, others take their places."""
    broken: dict[str, str] = {}
    while True:
        selection = select(rows, perspective.spec, perspective.version, perspective.run_id, settled | broken.keys())
        newly_broken = {
            group.record.group_id: why for group in selection.chosen if (why := _broken(rows, group, perspective))
        }
        if not newly_broken:
            return selection, broken
        broken |= newly_broken


def _broken(rows: PoolRows, group: PooledGroup, perspective: Perspective) -> str | None:
    try:
        assemble_rows(rows, group, perspective.spec, perspective.run_id, perspective.version)
    except PromptBroken as why:
        return f"prompt_mismatch: {why.call_id}"
    return None


def _others(rows: PoolRows, runs: RunIndex, perspective: Perspective, selection: Selection) -> dict[str, str | None]:
    """Groups that selection does not speak of: how the run settled them, or None: their rows are of different moments."""
    spoken = (
        {group.record.group_id for group in selection.chosen} | selection.left_out.keys() | selection.skipped.keys()
    )
    others = (record.group_id for record in rows.group_rows() if record.group_id not in spoken)
    return {group_id: _settled(runs, perspective.run_id, group_id) for group_id in others}


def _settled(runs: RunIndex, run_id: str, group_id: str) -> str | None:
    for batch in runs.planned(group_id):
        if batch.run_id == run_id:
            return f"planned_in_batch_{batch.sequence}"
    skipped = runs.skipped(group_id).get(run_id)
    return skipped and f"skipped: {skipped}"


def counts(rows: PoolRows, chosen: tuple[PooledGroup, ...], perspective: Perspective) -> dict[str, Any]:  # JSON
    """Sizes of a batch and what its rewards and versions are; why parts of chosen groups are not trained.

    `tokens_saved` is what its calls would take one by one less what its rows take.
    """
    spec = perspective.spec
    training_rows: list[TrainingRow] = []
    for group in chosen:
        training_rows += assemble_rows(rows, group, spec, perspective.run_id, perspective.version)
    members = [member for group in chosen for member in trained_members(group, spec)]
    steps = [(step, mask_at(step, member, spec, perspective.version)) for member in members for step in member.steps]
    trained = [step for step, mask in steps if mask is None]
    one_by_one = sum(step.prompt_length + step.response_length for step in trained)
    row_tokens = sum(map(len, training_rows))
    return {
        "groups": len(chosen),
        "trajectories": sum(len(group.members) for group in chosen),
        "trajectories_trained": len(members),
        "dropped": _counted("truncated" for group in chosen for _ in group.dropped),
        "baseline_only": _counted(why for group in chosen for why in baseline_only(group, spec).values()),
        "responses_trained": len(trained),
        "response_tokens": sum(row.trained_tokens for row in training_rows),
        "masked": _counted(mask.word for _, mask in steps if mask is not None),
        "rows": len(training_rows),
        "row_tokens": row_tokens,
        "row_tokens_max": max(map(len, training_rows), default=0),
        "tokens_saved": one_by_one - row_tokens,
        **_rewards(chosen, perspective.version),
    }


def _rewards(chosen: Sequence[PooledGroup], version: int) -> dict[str, Any]:  # JSON
    """Over all members, as baselines are; `zero_variance_groups` teach nothing, except where no group baseline is."""
    by_group = [group.returns for group in chosen]
    every_return = [value for group_returns in by_group for value in group_returns]
    oldest = [member.record.min_version for group in chosen for member in group.members]
    return {
        "return_mean": sum(every_return) / len(every_return) if every_return else None,
        "zero_variance_groups": sum(map(all_equal, by_group)),
        "staleness_max": max((version - version_min for version_min in oldest if version_min is not None), default=0),
    }


def _counted(words: Iterable[str]) -> dict[str, int]:
    """The most frequent first."""
    return dict(sorted(Counter(words).items(), key=lambda item: (-item[1], item[0])))


def as_text(answer: dict[str, Any], *, verbose: bool = False) -> str:  # JSON
    """The preview for a person: sums by reason, and which groups they are where `verbose` asks for it."""
    groups_wanted, groups = answer["groups_wanted"], answer["groups"]
    whole = "a whole batch" if answer["complete"] else f"{groups_wanted - groups} more to wait for"
    if answer["complete"] and groups < groups_wanted:
        whole += ", full by response_tokens_max or by what a plan holds"
    of_run = f"run {answer['run_id'] or '-'} at version {answer['version']}, {answer['algorithm']}"
    lines = [f"{of_run}: {groups} of {groups_wanted} groups, {whole}"]
    if groups:
        lines += _sizes(answer)
    if groups and verbose:
        lines.append(f"chosen: {', '.join(answer['chosen'])}")
    by_reason: dict[str, list[str]] = defaultdict(list)
    for group_id, reason in answer["left_out"].items():
        by_reason[reason].append(group_id)
    for kind, reasons in answer["reasons"].items():
        lines.append(f"left out, {KINDS[kind]}:")
        for reason, count in reasons.items():
            lines.append(f"  {count:>5}  {reason}" + (f"  {', '.join(by_reason[reason])}" if verbose else ""))
    return "\n".join(lines)


def _sizes(answer: dict[str, Any]) -> list[str]:  # JSON
    saved, alone = answer["tokens_saved"], answer["tokens_saved"] + answer["row_tokens"]
    mean = "-" if answer["return_mean"] is None else f"{answer['return_mean']:g}"
    share = f" ({saved / alone:.0%})" if alone else ""
    rows = f"  rows          {answer['rows']}, {answer['row_tokens']} tokens, the longest {answer['row_tokens_max']}; "
    return [
        f"  trajectories  {answer['trajectories_trained']} of {answer['trajectories']} trained"
        + _listed(answer["baseline_only"], "in the baseline only")
        + _listed(answer["dropped"], "not counted"),
        f"  responses     {answer['responses_trained']} trained, {answer['response_tokens']} tokens"
        + _listed(answer["masked"], "masked"),
        rows + f"shared prefixes save {saved} of {alone}{share}",
        f"  returns       mean {mean}, groups of equal returns: {answer['zero_variance_groups']}",
        f"  staleness     up to {answer['staleness_max']}",
    ]


def _listed(words: Mapping[str, int], head: str) -> str:
    items = ", ".join(f"{count} {word}" for word, count in words.items())
    return f"; {head}: {items}" if items else ""
