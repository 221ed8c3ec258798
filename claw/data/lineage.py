"""`claw lineage`: from a weights version to the requests behind it, and from a call to the versions trained on it; from
a verdict to its judge's calls."""

import re
from collections.abc import Iterator
from contextlib import closing

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.consumers.lineage.answer import of_data, of_version
from claw_r1.consumers.lineage.trace import trace_data, trace_version
from claw_r1.consumers.lineage.verdicts import TracedVerdict, trace_verdict
from claw_r1.consumers.pool.event_json import as_plain
from claw_r1.eventlog.kafka.reader import FactLookup
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.keys import parts

QUESTION_CHARACTERS = 60
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TRAJECTORIES_SHOWN = 20
"""The most trajectories as text, where nobody names a limit; JSON has all of them then."""


def run_lineage(name: str, *, every: bool, limit: int | None, prefix: str, as_json: bool) -> Answer:
    """Traces it; exit code 1 when no version was trained on the id, or there is no such version.

    limit: trajectories at most; None: `TRAJECTORIES_SHOWN` as text, all of them as JSON.
    """
    trajectories_max = limit if limit is not None or as_json else TRAJECTORIES_SHOWN
    with log_for_reading(prefix) as settings:
        answer, code = answer_of(settings, name, every=every, limit=trajectories_max)
    return Answer(answer, as_text(answer), code)


def answer_of(settings: LogSettings, name: str, *, every: bool, limit: int | None = None) -> tuple[JsonDict, int]:
    """The answer as JSON, and the exit code. `RUN/NUMBER` is a version where one of that name was published.

    limit: trajectories at most, in order; what is left out is counted. None: all of them.
    """
    run_id, _, number = name.rpartition("/")
    with closing(FactLookup(settings)) as lookup:
        if run_id and number.isdecimal():
            trace = trace_version(settings, run_id, int(number), every=every)
            if trace is not None:
                return of_version(name, trace, lookup, limit), 0
        if UUID.fullmatch(name) and (verdict := trace_verdict(settings, name)) is not None:
            return _verdict(name, verdict), 0
        traced = trace_data(settings, name)
        answer = of_data(name, traced, lookup, limit)
    return answer, 0 if any(batch.made_version is not None for batch in traced.batches) else 1


def _verdict(name: str, traced: TracedVerdict) -> JsonDict:
    """A verdict has no batches of its own: the calls that it judged have."""
    words = [
        {
            "group_id": event.group_id,
            "trajectory_id": event.trajectory_id,
            "call_id": event.call_id,
            "value": getattr(event, "value", None),
        }
        for event in traced.rewards
    ]
    judge_calls = [
        dict(zip(("group_id", "trajectory_id", "call_id"), parts(c.encode()), strict=True))
        for c in traced.verdict.calls
    ]
    return {
        "id": name,
        "kind": "verdict",
        "verdict": as_plain(traced.verdict),
        "judge_calls": judge_calls,
        "rewards": words,
    }


def as_text(answer: JsonDict) -> Iterator[str]:
    """A tree: what was asked about, batches, groups and trajectories, calls."""
    if answer["kind"] == "verdict":
        yield from _verdict_text(answer)
        return
    if answer["kind"] == "version":
        weights = answer["weights"]
        where = weights["checkpoint_uri"] or "no checkpoint"
        yield f"version {answer['id']} of {weights['model_id']}, digest {weights['digest'][:12]}, {where}"
    elif not answer["batches"]:
        yield f"{answer['kind']} {answer['id']}: no batch names it"
        yield from (f"  run {s['run_id']} skipped group {s['group_id']}: {s['reason']}" for s in answer["skipped"])
    else:
        yield f"{answer['kind']} {answer['id']}"
    if answer["kind"] == "version" and not answer["batches"]:
        yield "  the initial weights: nothing was trained"
    for batch in answer["batches"]:
        yield from _batch_text(batch)
    if left_out := answer["left_out"]["trajectories"]:
        more = answer["left_out"]["batches"]
        yield (
            f"  and {left_out} more trajectories" + (f", {more} more batches" if more else "") + ": --limit shows more"
        )


def _verdict_text(answer: JsonDict) -> Iterator[str]:
    verdict = answer["verdict"]
    words = verdict["failed"] or ", ".join("nothing" if value is None else f"{value:g}" for value in verdict["values"])
    scorer = f"{verdict['source']}/{verdict['name']}@{verdict['version']}, generation {verdict['generation']}"
    yield f"verdict {answer['id']} of {scorer} on {verdict['subject']}: {words}"
    if verdict["detail"]:
        yield f"  {' '.join(verdict['detail'].split())}"
    yield f"  cost {verdict['tokens']} tokens, {verdict['seconds']:.2f} s"
    for call in answer["judge_calls"]:
        yield f"  the judge's call {call['call_id']} of trajectory {call['trajectory_id']}, group {call['group_id']}"
    for word in answer["rewards"]:
        subject = "/".join(word[name] for name in ("group_id", "trajectory_id", "call_id") if word[name] is not None)
        yield f"  {'no value' if word['value'] is None else format(word['value'], 'g')} to {subject}"


def _batch_text(batch: JsonDict) -> Iterator[str]:
    outcome = (
        "not trained yet"
        if batch["made_version"] is None
        else f"made version {batch['run_id']}/{batch['made_version']}"
    )
    versions = (
        "" if batch["first_version"] is None else f"; in versions {batch['first_version']}..{batch['last_version']}"
    )
    old = (
        "" if batch["oldest_version"] is None else f"; tokens older than version {batch['oldest_version']} were context"
    )
    yield f"  batch {batch['sequence']} of run {batch['run_id']}: {outcome}{versions}{old}"
    for trajectory in batch["trajectories"]:
        yield f"    group {trajectory['group_id']}  trajectory {trajectory['trajectory_id']}  reward {trajectory['reward']:g}  advantage {trajectory['advantage']:+.3f}"
        yield from (f"      {_step_text(step)}" for step in trajectory["steps"])


def _step_text(step: JsonDict) -> str:
    place = step["position"]
    where = f"{place['topic']}[{place['partition']}]@{place['offset']}"
    role = "trained" if step["trained"] else "context"
    if step["trained"] and step["weights"] is not None:
        role += " with weights {:g}, {:g}, {:g}".format(*step["weights"])
    if step["rendered"]:
        role += ", rendered from its messages,"
    if step["request"] is None:
        return f"{role} call {step['call_id']}  {where}  (retention removed the call)"
    question = " ".join((step["request"]["asked"] or "").split())[:QUESTION_CHARACTERS]
    return f"{role} call {step['call_id']}  {where}  sampled by {', '.join(step['sampled_by']) or '-'}  {question!r}"
