"""`claw pool batch`: what the next batch of a spec would be, and why each other group is not in
it. It writes nothing."""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from claw_r1.claw.answers import Answer
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.pool.options import PerspectiveOptions
from claw_r1.claw.pool.reading import named_spec, open_pool
from claw_r1.consumers.pool.perspective import perspective_of
from claw_r1.datapool.view.preview import previewed
from claw_r1.eventlog.kafka.reader import FactLookup

KINDS = {
    "waits": "may still come",
    "never": "never, for this run",
    "foreign": "of another run or for another spec",
    "settled": "settled by this run",
}


def preview(options: PerspectiveOptions, *, prefix: str, verbose: bool) -> Answer:
    """Previews it; exit code 1 when the batch is not complete. Raises CannotRun without a spec.

    verbose: with the ids of the groups; JSON has them always.
    """
    spec = named_spec(options)
    with open_pool(prefix) as pool, closing(FactLookup(pool.settings)) as facts:
        runs = pool.runs()
        perspective = pool.view.ask(
            lambda rows: perspective_of(rows, runs, spec, run_id=options.run, version=options.version)
        )
        if perspective is None:
            raise CannotRun("no run has a spec yet: name one by --spec FILE or --preset NAME")
        answer = previewed(lambda look: pool.view.ask(lambda rows: look(rows, runs)), facts, perspective).answer
    return Answer(answer, as_text(answer, verbose=verbose), 0 if answer["complete"] else 1)


def as_text(answer: dict[str, Any], *, verbose: bool = False) -> str:  # JSON
    """The preview for a person: sums by reason, and which groups they are where `verbose` asks for it."""
    groups_wanted, groups = answer["groups_wanted"], answer["groups"]
    whole = "a whole batch" if answer["complete"] else f"{groups_wanted - groups} more to wait for"
    if answer["complete"] and groups < groups_wanted:
        whole += ", full by response_tokens_max or by what a plan holds"
    of_run = f"run {answer['run_id'] or '-'} at version {answer['version']}, {answer['algorithm']}"
    lines = [f"{of_run}: {groups} of {groups_wanted} groups, {whole}"]
    lines += [f"warning: {warning}" for warning in answer["warnings"]]
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
