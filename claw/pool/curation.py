"""`claw pool curate`: a person's judgement of steps, published as StepCurated on claw.rewards, and its undoing."""

from collections.abc import Iterable, Sequence
from contextlib import closing

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.pool.append import append
from claw_r1.claw.pool.reading import open_pool
from claw_r1.consumers.pool.curation import CurationRequest, check_curator, curations, curations_undone, resolve
from claw_r1.consumers.pool.event_json import as_plain
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.eventlog.kafka.reader import FactLookup, read_topics
from claw_r1.eventlog.records import readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import new_id
from claw_r1.schemas.events import StepCurated
from claw_r1.schemas.topics import REWARDS

PRODUCER = "claw pool curate"


def run_curation(
    ids: Sequence[str],
    filters: PoolFilter,
    judgement: CurationRequest,
    *,
    who: str | None,
    dry_run: bool,
    prefix: str,
) -> Answer:
    """Judges the steps of the ids that meet the filter; exit code 1 when there is none. Raises CannotRun, PoolRefusal."""
    who = _checked(ids, filters, judgement, who)
    with open_pool(prefix) as pool, closing(FactLookup(pool.settings)) as facts:
        steps = pool.view.ask(lambda rows: resolve(rows, ids, filters, facts))
        curation_id = new_id()
        events = curations(steps, judgement, who=who, producer=PRODUCER, act_id=curation_id)
        return _publish(pool.settings, events, curation_id, dry_run=dry_run)


def check_alone(ids: Sequence[str], filters: PoolFilter, judgement: CurationRequest) -> None:
    """An undo concerns the steps of what is undone, and no others: what would narrow or change it is refused. Raises CannotRun."""
    beside = {"ids": bool(ids), "filters": filters != PoolFilter(), "a judgement": judgement != CurationRequest()}
    if contradictions := [name for name, present in beside.items() if present]:
        raise CannotRun(
            f"--undo takes back a whole curation, or one event of it: {' and '.join(contradictions)} cannot stand beside it"
        )


def run_undo(undone: str, *, who: str | None, dry_run: bool, prefix: str) -> Answer:
    """Takes a curation or one event back; exit code 1 when nothing of it stands any more. Raises CannotRun."""
    if not who:
        raise CannotRun("who judges? --who NAME")
    with log_for_reading(prefix) as settings:
        history = readable(read_topics(settings, [REWARDS]))
        curation_id = new_id()
        events = curations_undone(history, undone, who=who, producer=PRODUCER, act_id=curation_id)
        return _publish(settings, events, curation_id, dry_run=dry_run)


def _checked(ids: Sequence[str], filters: PoolFilter, judgement: CurationRequest, who: str | None) -> str:
    if judgement == CurationRequest():
        raise CannotRun(
            "nothing is judged: say --train or --no-train, --quality, --set-score, --set-tag or --why (or --undo ID)"
        )
    if not ids and filters == PoolFilter():
        raise CannotRun("which steps? name ids, or a filter such as --channel")
    if not who:
        raise CannotRun("who judges? --who NAME")
    check_curator(who)
    return who


def _publish(settings: LogSettings, events: Sequence[StepCurated], curation_id: str, *, dry_run: bool) -> Answer:
    """All or an error: publishing again after one is safe, the later judgement counts."""
    if not dry_run:
        append(settings, REWARDS, events)
    summary = {"curation_id": curation_id, "steps": len(events), "dry_run": dry_run}
    lines = [f"{event.group_id}/{event.trajectory_id}/{event.call_id}" for event in events]
    verb = "would be judged" if dry_run else f"judged; take it back with --undo {curation_id}"
    lines.append(f"{len(events)} steps {verb}" if events else "no step is concerned")
    return Answer({**summary, "events": [as_plain(event) for event in events]}, lines, 0 if events else 1)


def scores_of(texts: Iterable[str]) -> dict[str, float | None]:
    """`entropy@1=0.9` as a score by scorer. Raises CannotRun."""
    scores: dict[str, float | None] = {}
    for text in texts:
        scorer, _, value = text.rpartition("=")
        try:
            scores[scorer] = float(value)
        except ValueError:
            scorer = ""
        if "@" not in scorer:
            raise CannotRun(f"--set-score takes SCORER@VERSION=NUMBER, not {text!r}")
    return scores
