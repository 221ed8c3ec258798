"""`claw verify`: whether the log keeps its promises. It writes nothing."""

from collections.abc import Iterable
from pathlib import Path

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.notice import Progress
from claw_r1.consumers.verify.pool_comparison import compare
from claw_r1.consumers.verify.report import Report
from claw_r1.consumers.verify.verify import verify
from claw_r1.eventlog.kafka.admin import as_on_broker
from claw_r1.eventlog.settings import LogSettings

PROGRESS = "claw verify: {done} of {total} partitions"
SHOWN_MAX = 20
"""Ids of a finding that are shown to a person; `--json` has them all."""


def run_verify(replied: Path | None, run_id: str | None, *, prefix: str, against: str | None = None) -> Answer:
    """Verifies; exit code 0 when every promise holds, 1 when not. `replied`: a file with one x-claw-call-id per line.
    against: the prefix of a log that this one was copied from, of another cluster with `@host:port`.

    Raises CannotRun without the file, HistoryCut when retention cut the facts, ConsumerError when the pool moves.
    """
    try:
        calls = () if replied is None else replied.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotRun(f"{replied}: cannot be read: {error}") from error
    with log_for_reading(prefix) as settings:
        report = verify_run(as_on_broker(settings), run_id, calls)
        if against is not None:
            origin, _, broker = against.partition("@")
            place = {"prefix": origin, "bootstrap_servers": broker or settings.bootstrap_servers}
            compare(settings, settings.model_copy(update=place), report)
    return Answer(report.to_json(), as_text(report), 0 if report.ok else 1)


def verify_run(settings: LogSettings, run_id: str | None, replied: Iterable[str] | None = None) -> Report:
    """The pool of `settings.generation`, all captured calls, and one run's plans (None: every run's).

    Call it when the streams are quiet. Raises ConsumerError, HistoryCut, BrokerUnreachable, TopicMissing.
    """
    return verify(settings, run_id=run_id, replied=replied or (), progress=Progress(PROGRESS))


def as_text(report: Report) -> str:
    """Lists the counts, then every finding with its count and its first ids."""
    lines = [", ".join(f"{count} {name}" for name, count in sorted(report.counts.items()))]
    for kind, ids in sorted(report.findings.items()):
        lines.append(f"{kind}: {len(ids)}")
        lines += [f"  {offender}" for offender in ids[:SHOWN_MAX]]
        if len(ids) > SHOWN_MAX:
            lines.append(f"  and {len(ids) - SHOWN_MAX} more: --json names them all")
    return "\n".join([*lines, "every promise holds" if report.ok else "promises are broken"])
