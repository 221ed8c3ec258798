"""All checks, one partition after the other."""

from collections.abc import Callable, Iterable, Mapping

from claw_r1.consumers.verify.errors import RunUnknown
from claw_r1.consumers.verify.facts import PartitionFacts
from claw_r1.consumers.verify.pool import RowDigests, look
from claw_r1.consumers.verify.report import Report
from claw_r1.consumers.verify.runs import Runs, read_runs
from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import FACTS

VerifyProgress = Callable[[int, int], None]
"""Told partitions done and partitions in all."""


def verify(
    settings: LogSettings,
    *,
    run_id: str | None = None,
    replied: Iterable[str] = (),
    progress: VerifyProgress = lambda _done, _of: None,
) -> Report:
    """Verifies that the log keeps its promises; findings by kind (docs/rebuild.md lists them).

    run_id: look at this run's plans and versions only. replied: values of x-claw-call-id that clients got. Raises
    HistoryCut when retention took facts (the pool cannot be checked without them), PoolMoves, OtherFolds, RunUnknown,
    BrokerUnreachable, TopicMissing.
    """
    report = Report()
    runs = read_runs(settings, run_id, report)
    if run_id is not None and run_id not in runs.runs:
        raise RunUnknown(f"the log holds no plan, batch or weights of run {run_id!r}")
    missing = dict.fromkeys(call_id.strip() for call_id in replied)
    missing.pop("", None)
    report.counts["replied"] = len(missing)
    partitions = len({number for _, number in end_offsets(settings, FACTS)})
    settings = settings.model_copy(update={"partitions": partitions})
    for partition in range(partitions):
        _verify_partition(settings, partition, runs, missing, report)
        progress(partition + 1, partitions)
    for call_id in missing:
        report.found("call_not_captured", call_id)
    return report


def _verify_partition(
    settings: LogSettings, partition: int, runs: Runs, missing: dict[str, None], report: Report
) -> None:
    """`missing` loses the calls that are here."""
    planned = runs.of_partition(partition)
    facts = PartitionFacts(settings, partition)
    facts.read(end_offsets(settings, FACTS), report, planned)

    def expected_at(offsets: Mapping[str, int]) -> RowDigests:
        """A pool that was written since may be ahead of what was read."""
        if any(offset > facts.offsets.get(topic, 0) for topic, offset in offsets.items()):
            facts.read(end_offsets(settings, FACTS), report, planned)
        return facts.expected_at(offsets)

    wrong, rows = look(settings, partition, expected_at)
    report.counts["pool_rows"] += rows
    for (topic, key), kind in wrong.items():
        report.found(kind, f"{topic} {key.decode('utf-8', 'replace')}")
    for _, _, call_id in facts.calls:
        missing.pop(call_id, None)
    for offender in facts.dangling():
        report.found("dangling_base", offender)
    for offender in facts.wrong_prompts():
        report.found("prompt_mismatch", offender)
    for offset in sorted(planned.keys() - facts.planned_seen):
        for plan in planned[offset]:
            report.found("planned_call_missing", f"{plan.where} at offset {offset}")
