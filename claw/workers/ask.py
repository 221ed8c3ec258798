"""`claw workers drain|probe`: asks one worker by HTTP, then waits for its own report to say that it was done.

A worker is asked at the URL that it reports; what it did with that is read from its topic, as everybody reads it.
"""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.notice import notice
from claw_r1.claw.workers.reports import newest_reports
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import readable
from claw_r1.schemas.events import WorkerReported
from claw_r1.schemas.topics import TAKES_TRAFFIC, WORKERS
from claw_r1.weights.sources import SECRET_VARIABLE, authorization

ANSWER_TIMEOUT_S = 10.0
POLL_S = 0.2
NAMES_MAX = 8
IsDone = Callable[[WorkerReported], bool]
"""A test whether a report says that the request was done."""


def run_drain(name: str, *, prefix: str, timeout_s: float) -> Answer:
    """Exit code 0 once the worker has ended, 1 when it had not within `timeout_s`."""
    return _ask(name, "drain", lambda _: lambda report: report.state == "dead", prefix, timeout_s)


def run_probe(name: str, *, prefix: str, timeout_s: float) -> Answer:
    """Exit code 0 once a new comparison with the trainer's logprobs is in and the worker takes calls, else 1: also when
    its engine was too busy to compare."""
    return _ask(name, "probe", lambda old: lambda report: _probed(report, old), prefix, timeout_s)


def _probed(report: WorkerReported, before: WorkerReported) -> bool:
    """Returns whether the worker probed, with a gap or without. A second probe may find the same gap, though hardly in
    the same time."""
    new, old = ((each.sync_ms.get("probe"), each.sync_ms.get("probe_gap")) for each in (report, before))
    return new[0] is not None and new != old


def _ask(
    name: str,
    wish: str,
    done_after: Callable[[WorkerReported], IsDone],
    prefix: str,
    timeout_s: float,
) -> Answer:
    with log_for_reading(prefix) as settings:
        before = named(newest_reports(settings), name)
        if before.state == "dead":
            raise CannotRun(f"worker {before.worker_id} has ended already")
        is_done, last = done_after(before), before
        key = before.worker_id.encode()
        with LogReader(settings, [WORKERS], start="end", wants=lambda _, other, __: other == key) as reader:
            post(before, wish)
            done = False
            for report in _reports(reader, before, timeout_s):
                done, last = is_done(report), report
                if done:
                    break
    checked = "probe_gap" in last.sync_ms and last.state in TAKES_TRAFFIC
    code = 0 if done and (wish == "drain" or checked) else 1
    answer = {"worker": last.worker_id, "asked": wish, "done": done, "state": last.state, "why": last.detail}
    answer |= {"in_flight": last.in_flight, "sync_ms": last.sync_ms}
    return Answer(answer, outcome_text(last, wish, done=done, timeout_s=timeout_s), code)


def _reports(reader: LogReader, last: WorkerReported, timeout_s: float) -> Iterator[WorkerReported]:
    """The worker's, as they come, until the time is over. What changes is said on stderr."""
    ends_at = time.monotonic() + timeout_s
    while time.monotonic() < ends_at:
        for report in readable(reader.poll(POLL_S)):
            if isinstance(report, WorkerReported):
                if (report.state, report.in_flight) != (last.state, last.in_flight):
                    notice(f"{report.worker_id}: {report.state}, {report.in_flight} calls in flight")
                last = report
                yield report


def named(reports: list[WorkerReported], name: str) -> WorkerReported:
    """The worker of this id, or the only one whose id ends in -NAME. Raises CannotRun."""
    exact = [report for report in reports if report.worker_id == name]
    matching = exact or [report for report in reports if report.worker_id.endswith(f"-{name}")]
    alive = [report for report in matching if report.state != "dead"] or matching
    if len(alive) == 1:
        return alive[0]
    listing = ", ".join(report.worker_id for report in (alive or reports)[:NAMES_MAX]) or "none"
    raise CannotRun(f"{'several workers are' if alive else 'no worker is'} called {name}; the log has: {listing}")


def post(worker: WorkerReported, wish: str) -> None:
    """POST /claw/drain or /claw/probe of the worker. Raises CannotRun when it does not take it."""
    headers = {"authorization": secret} if (secret := authorization()) else {}
    url = f"{worker.url.rstrip('/').removesuffix('/v1')}/claw/{wish}"
    request = urllib.request.Request(url, method="POST", data=b"", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as reply:
            is_accepted = reply.status == 202
    except urllib.error.HTTPError as refusal:
        why = f"set {SECRET_VARIABLE} to the fleet's secret" if refusal.code in (401, 403) else "it refuses"
        raise CannotRun(f"worker {worker.worker_id} answers {refusal.code} at {url}: {why}") from refusal
    except (OSError, ValueError) as away:
        raise CannotRun(f"worker {worker.worker_id} does not answer at {url}: {away}") from away
    if not is_accepted:
        raise CannotRun(f"what answers at {url} is no worker of ours")


def outcome_text(report: WorkerReported, wish: str, *, done: bool, timeout_s: float) -> str:
    """The outcome for a person."""
    gap = report.sync_ms.get("probe_gap")
    probed = "not checked: the engine was too busy" if gap is None else f"differs from the trainer by {gap:.3g} at most"
    outcome = "has ended" if wish == "drain" else probed
    why = f" ({report.detail})" if report.detail else ""
    if done:
        return f"{report.worker_id} {outcome}{why}"
    return f"{report.worker_id} is {report.state} after {timeout_s:g} s{why}"
