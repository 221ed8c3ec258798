"""The list of faults and of things not yet ready, in plain words, with remedies. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from claw_r1.schemas.json_values import JsonDict

WAITED_S = 60
LATE_BATCHES = 2
"""A run that trains nothing for this time, and for so many usual batches, is reported."""
OLD_S = 86400
"""The age from which a silent process is history."""
NAMED = 3
"""Workers named in one sentence."""
WORDS = (
    (r"reward_required_for_\d+: (.+)", r"lack \1"),
    (r"reward_missing_for_\d+", "lack a reward"),
    (r"quality_missing_for_\d+: (.+)", r"lack a score of \1"),
    (r"quality_missing_for_\d+", "lack a score of quality"),
    (r"tags_missing: (.+)", r"lack the tag \1"),
    (r"environment_full: (.+)", r"wait for other environments than \1"),
    (r"environment_without_share: (.+)", r"are of environment \1, which has no share"),
    (r"members_\d+_of_\d+", "have too few ready members"),
    (r"zero_variance", "have equal returns, which teach nothing"),
    (r"too_stale", "were sampled by a version that is too old"),
    (r"(policy_of_other_run: .*|other_run)", "belong to another run"),
    (r"rows_changing", "are being written"),
    (r"for more groups", "are ready for the next batch"),
)
"""Reasons of `claw_r1.datapool.batch.eligibility` in terms of the groups; others are unchanged."""


def alarms(
    pool: JsonDict,
    run: JsonDict | None,
    workers: Sequence[JsonDict],
    *,
    runs: int,
    caught_up: bool,
    now_us: int,
) -> Iterator[JsonDict]:
    """Yields the alarms of the run, of its part of the pool and of the workers, the worst first. run: None for all `runs`."""
    if run is not None:
        yield from _of_run(run, pool, now_us)
    yield from _of_workers(workers, needed=run is not None and run["state"] not in ("starting", "ended"))
    nothing = not sum(
        pool[name]["count"]
        for name in (
            "trajectories",
            "trajectories_of_evaluations",
            "calls",
        )
    )
    if caught_up and nothing:
        todo = "Give an agent the gateway's address: base_url http://HOST:8000/TRAJECTORY/GROUP. Or see a whole run:"
        yield alarm("note", "Nothing is captured yet.", todo, "claw demo")
    calls, useless = pool["calls"]["count"], pool["calls_untrainable"]["count"]
    if useless * 2 > calls:
        why = pool["left_out"]["calls that cannot be trained"][:3]
        words = ", ".join(f"{each['reason']} ({each['count']:,})" for each in why)
        what = f"{useless:,} of {calls:,} calls cannot be trained: {words}."
        yield alarm("problem", what, to=pool["calls_untrainable"]["to"])
    if run is None and not runs and pool["groups_ready"]["count"]:
        what = f"Nobody trains: {pool['groups_ready']['count']:,} groups are ready, and no run has begun."
        yield alarm("note", what, "Start one:", "claw train --config FILE", to=pool["groups_ready"]["to"])


def alarm(
    level: str, what: str, todo: str | None = None, command: str | None = None, to: tuple[str, JsonDict] | None = None
) -> JsonDict:
    """level: problem or note. todo: a sentence. command: to type, without anybody's ids in it. to: a view and what it shows."""
    return {"level": level, "what": what, "todo": todo, "command": command, "to": to}


def _of_run(run: JsonDict, pool: JsonDict, now_us: int) -> Iterator[JsonDict]:
    name, here = run["run"], ("runs", {"run": run["run"]})
    if run["state"] == "ended":
        if run["why_ended"].startswith("failed"):
            yield alarm(
                "problem", f"Run {name} failed: {run['why_ended']}.", "Its trainer's log has the rest.", to=here
            )
        return
    idle_s = (now_us - (run["last_batch_us"] or run["started_us"])) / 1e6
    if run["state"] == "starting":
        yield alarm("note", f"Run {name} is starting: it has trained no batch yet.", to=here)
        return
    waiting = run["waiting"]
    if run["state"] == "stopped":
        todo = "If its trainer is gone, the same command with the same --run-id resumes it; what runs there are:"
        silent_s = (now_us - run["seen_us"]) / 1e6
        level = "problem" if silent_s < OLD_S else "note"
        yield alarm(level, f"Run {name} wrote nothing for {_span(silent_s)}.", todo, "claw runs list", here)
    usual_s = run["batch_s"] or 0.0
    if idle_s < max(WAITED_S, LATE_BATCHES * usual_s) or (run["state"] == "stopped" and not waiting["groups"]):
        return
    what, lacking = f"Nobody trains for {_span(idle_s)}; a batch takes {_span(usual_s)}", plain(waiting["reasons"])
    if not waiting["groups"]:
        to = ("explorer", {**pool["groups"]["to"][1], "ready": "false"})
        yield alarm("problem", f"{what}. No group is ready that the run has not used.", to=to)
    elif lacking:
        some = "" if waiting["looked_at"] >= waiting["groups"] else f" (of the newest {waiting['looked_at']})"
        reasons = ", ".join(
            f"{number} {'groups ' if at == 0 else ''}{words}" for at, (words, number) in enumerate(lacking.items())
        )
        what = f"{what}. {waiting['groups']:,} groups wait{some}; {reasons}."
        todo = "What the next batch lacks, group by group:"
        yield alarm("problem", what, todo, "claw pool batch --verbose", ("lab", {"run": name}))


def plain(reasons: Sequence[JsonDict]) -> dict[str, int]:
    """Groups by what they do: "lack judge/style": 7; the most frequent first."""
    words: Counter[str] = Counter()
    for each in reasons:
        phrases = (
            re.sub(pattern, text, each["reason"]) for pattern, text in WORDS if re.fullmatch(pattern, each["reason"])
        )
        words[next(phrases, f"are left out: {each['reason']}")] += each["groups"]
    return dict(words.most_common())


def _of_workers(workers: Sequence[JsonDict], *, needed: bool) -> Iterator[JsonDict]:
    """needed: a run is under way."""
    to = ("operations", {"tab": "processes"})
    silent = [worker for worker in workers if worker["silent"] and worker["age_s"] < OLD_S]
    if silent:
        what = f"{_workers(silent)} silent for {_span(min(worker['age_s'] for worker in silent))}."
        yield alarm(
            "problem",
            what,
            "See whether the process lives, and whether it reaches the broker:",
            "claw workers list",
            to,
        )
    for worker in workers:
        if worker["state"] == "behind" and not worker["silent"]:
            what = f"Worker {worker['worker']} serves version {worker['version']}, {worker['versions_behind']} behind"
            yield alarm("problem", f"{what}: {worker['why'] or 'it does not get the newer ones'}.", to=to)
    coming = [worker for worker in workers if worker["state"] == "starting" and not worker["silent"]]
    if coming:
        yield alarm("note", f"{_workers(coming)} starting.", to=to)
    idle = all(worker["silent"] or worker["state"] not in ("ready", "updating") for worker in workers)
    if needed and workers and idle and not coming:
        yield alarm("problem", "No worker takes calls to train on.", "Start one:", "claw rollout --model DIR", to)


def _workers(workers: Sequence[JsonDict]) -> str:
    names = [worker["worker"] for worker in workers]
    if len(names) == 1:
        return f"Worker {names[0]} is"
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} workers ({', '.join(names[:NAMED])}{more}) are"


def _span(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
