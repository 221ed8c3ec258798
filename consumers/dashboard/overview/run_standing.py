"""The standing of a run: its planned and trained groups, omitted groups with reasons, and its versions. Pure."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from claw_r1.consumers.dashboard.source import RunsState
from claw_r1.consumers.runs.summary import row
from claw_r1.datapool.batch.eligibility import Refusal, eligible
from claw_r1.datapool.batch.spec import BatchSpec, parsed_spec
from claw_r1.datapool.runs import Planned, Run, RunIndex, trained_us
from claw_r1.datapool.view.left_out import why_left_out
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.schemas.events import WorkerReported
from claw_r1.schemas.json_values import JsonDict

VERSIONS_MAX = 12
LOOKED_AT = 20
"""Groups whose members are read to say why they wait: the newest."""
OWN_RETURN = re.compile(r"its return \S+ was")


def standing(state: RunsState, run: Run, now_us: int) -> JsonDict:
    """A run as the overview has it."""
    batches = run.batches
    times = [trained_us(batch) for batch in batches[-11:]]
    per_hour = (len(times) - 1) * 3.6e9 / (times[-1] - times[0]) if len(times) > 1 and times[-1] > times[0] else None
    return {
        **row(run, now_us),
        "why_ended": run.ended and f"{run.ended.status} {run.ended.reason}".strip(),
        "planned": plans(state.index, run.run_id),
        "skipped": dict(run.skip_reasons.most_common(20)),
        "batches_per_hour": per_hour and round(per_hour, 2),
        "started_us": run.started_us,
        "batch_s": run.batch_s,
        "last_batch": batches[-1].sequence if batches else run.sequence_free - 1 if run.sequence_free else None,
        "last_batch_us": trained_us(batches[-1]) if batches else None,
        "seen_us": run.seen_us,
        "versions": versions(run, state.workers.values()),
    }


def plans(index: RunIndex, run_id: str) -> JsonDict:
    """Counts the content of a run's plans: groups, trajectories and those trained; of the others the sentences why not,
    counted."""
    groups, trajectories, trained = 0, 0, 0
    sequences: set[int] = set()
    left_out: Counter[tuple[object, ...]] = Counter()
    examples: dict[tuple[object, ...], tuple[Planned, str]] = {}
    for batch in _planned(index, run_id):
        groups += 1
        trajectories += len(batch.reward)
        sequences.add(batch.sequence)
        idle = [name for name, calls in batch.trained.items() if not calls]
        trained += len(batch.reward) - len(idle) if index.version_made(batch) is not None else 0
        least = _return_min(batch.spec) if idle else None
        kinds = {name: (bool(batch.masked[name]), least is not None and batch.reward[name] < least) for name in idle}
        for kind, number in Counter(kinds.values()).items():
            left_out[batch.spec, batch.oldest_version, kind] += number
            if (batch.spec, batch.oldest_version, kind) not in examples:
                name = next(name for name in idle if kinds[name] == kind)
                examples[batch.spec, batch.oldest_version, kind] = batch, name
    state = index.runs.get(run_id)
    trained_batches = state.trained.keys() if state else ()
    sentences: Counter[str] = Counter()
    for case, number in left_out.items():
        sentences[OWN_RETURN.sub("its return was", why_left_out(*examples[case]) or "")] += number
    return {
        "groups": groups,
        "trajectories": trajectories,
        "trained": trained,
        "left_out": dict(sentences.most_common(20)),
        "batches": len(sequences),
        "batches_waiting": len(sequences.difference(trained_batches)),
    }


@lru_cache(maxsize=64)
def _return_min(spec: str) -> float | None:
    parsed = parsed_spec(spec)
    return None if parsed is None else parsed.return_min


def _planned(index: RunIndex, run_id: str) -> Iterator[Planned]:
    """The batches of a run that hold each group."""
    state = index.runs.get(run_id)
    for group_id in state.settled if state else ():
        for batch in index.planned(group_id):
            if batch.run_id == run_id:
                yield batch


def spec_of(run: Run) -> BatchSpec | None:
    """Returns the spec of the run's last plan, else of its settings; None where another version of the code wrote it."""
    return parsed_spec(run.spec or json.dumps(run.config.get("spec")))


def waiting(rows: PoolRows, groups: Sequence[str], run: str, version: int, spec: BatchSpec | None) -> JsonDict:
    """Returns why ready groups that the run has not settled are not in a batch, for the newest of them. groups: ids,
    the newest first."""
    reasons: Counter[tuple[str, str]] = Counter()
    looked_at = groups[:LOOKED_AT] if spec is not None else ()
    for group_id in looked_at:
        record = rows.group(group_id)
        answer = eligible(rows, record, spec, version, run) if record is not None and spec is not None else None
        if isinstance(answer, Refusal):
            reasons[answer.kind, answer.reason] += 1
        else:
            reasons["next" if answer else "wait", "for more groups" if answer else "rows_changing"] += 1
    counted = [{"kind": kind, "reason": reason, "groups": number} for (kind, reason), number in reasons.most_common()]
    return {"groups": len(groups), "looked_at": len(looked_at), "reasons": counted}


def versions(run: Run, workers: Iterable[WorkerReported]) -> list[JsonDict]:
    """The newest versions of a run, and older ones that a worker still has."""
    holders: dict[int, list[str]] = {}
    for worker in workers:
        if worker.run_id == run.run_id and worker.version is not None and worker.state != "dead":
            holders.setdefault(worker.version, []).append(worker.worker_id)
    batches = {batch.version: batch for batch in run.trained.values()}
    newest = sorted(run.published.keys() | batches.keys() | holders.keys(), reverse=True)
    chosen = [*newest[:VERSIONS_MAX], *sorted(holders.keys() & set(newest[VERSIONS_MAX:]), reverse=True)]
    return [
        {
            "version": number,
            "made_us": trained_us(batches[number]) if number in batches else None,
            "batch": batches[number].sequence if number in batches else None,
            "reward": batches[number].metrics.get("reward") if number in batches else None,
            "published": number in run.published,
            "workers": sorted(holders.get(number, [])),
        }
        for number in chosen
    ]
