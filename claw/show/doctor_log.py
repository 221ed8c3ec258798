"""The part of `claw doctor` that asks the broker: topics, replicas, who may read along, keys, and what stands still.

Each check is asked alone: one that fails is a finding, and the others go on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.keys.records import newest_keys, state_of
from claw_r1.claw.show.log import log_for_reading
from claw_r1.claw.workers.reports import newest_reports
from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.admin import TopicState, check_broker, describe_topics, diff_topics, end_offsets
from claw_r1.eventlog.kafka.reader import committed_offsets
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.api_keys import names_loopback
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import KeyRecorded, WorkerReported
from claw_r1.schemas.topics import CALLS, REWARDS

Severity = Literal["ok", "note", "bad"]
REPLICAS, INSYNC = 3, 2
BEHIND_MAX = 5000
"""Facts that the pool may be behind without a word."""
AHEAD_MAX_S = 2.0
"""How far another host's clock may be ahead: completions and rewards are ordered by time."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: `ok`, `note` (acceptable on a local stack, for example) or `bad` (something would not hold)."""

    check: str
    state: Severity
    says: str


def log_findings(prefix: str) -> Iterator[Finding]:
    """Finds out whether a broker answers, and what stands on it that would not hold."""
    try:
        with log_for_reading(prefix) as settings:
            info = check_broker(settings)
            yield Finding(
                "broker", "ok", f"{settings.bootstrap_servers} answers, with the brokers {', '.join(info.brokers)}"
            )
            yield wire(settings.bootstrap_servers, secured=settings.secured)
            yield from _standing(settings)
    except (CannotRun, LogError) as unreachable:
        yield Finding("broker", "bad", str(unreachable))


def _standing(settings: LogSettings) -> Iterator[Finding]:
    states = describe_topics(settings)
    if not states:
        yield Finding("topics", "bad", f"none with prefix {settings.prefix}: run `claw topics create`")
        return
    settings = settings.model_copy(update={"partitions": states[0].partitions, "replication": states[0].replication})
    for difference in diff_topics(settings):
        yield Finding("topics", "bad", difference)
    yield replication(states)
    yield from asked("pool", lambda: pool(*_folded(settings)))
    yield from asked("keys", lambda: keys(newest_keys(settings), now_us()))
    yield from asked("clocks", lambda: clocks(newest_reports(settings), now_us()))


def asked(check: str, question: Callable[[], Finding]) -> Iterator[Finding]:
    """The finding, or why there is none: no right to read a topic is no fault of the stack."""
    try:
        yield question()
    except LogError as refused:
        yield Finding(check, "note", f"not known: {refused}")


def wire(servers: str, *, secured: bool) -> Finding:
    """Finds out whether the network can read along."""
    elsewhere = [server for server in servers.split(",") if not names_loopback(server.strip())]
    if secured or not elsewhere:
        return Finding("wire", "ok", "secured" if secured else "on this machine alone")
    what = f"{', '.join(elsewhere)} takes everybody, in clear: whoever is on that network reads and writes all facts"
    return Finding("wire", "note", f"{what}; set CLAW_LOG_SECURITY_PROTOCOL=SASL_SSL (docs/security.md)")


def replication(states: Iterable[TopicState]) -> Finding:
    """Finds out whether a lost broker loses what was acknowledged."""
    states = list(states)
    fewest, insync = min(state.replication for state in states), min(state.min_insync for state in states)
    if fewest == 1:
        return Finding(
            "replication",
            "note",
            "one replica: a lost disk is lost data; 3 replicas with min.insync.replicas 2 outside the local stack",
        )
    if fewest < REPLICAS or insync < INSYNC:
        weak = next(state.name for state in states if state.replication < REPLICAS or state.min_insync < INSYNC)
        what = f"{fewest} replicas, min.insync.replicas {insync} (such as {weak})"
        return Finding(
            "replication", "bad", f"{what}: an acknowledged record may be lost with one broker; 3 and 2 hold"
        )
    return Finding("replication", "ok", f"{fewest} replicas, {insync} have a record before it is acknowledged")


def pool(ends: Mapping[Place, int], committed: Mapping[Place, int | None]) -> Finding:
    """Finds out whether facts wait to be folded. committed: by the stream processors; None: never."""
    behind = sum(max(0, end - (committed.get(place) or 0)) for place, end in ends.items())
    if behind and all(offset is None for offset in committed.values()):
        return Finding(
            "pool", "bad", f"{behind:,} facts, and no stream processor has ever read one: run `claw streams`"
        )
    if behind > BEHIND_MAX:
        return Finding(
            "pool", "note", f"{behind:,} facts behind: one more `claw streams` (docs/runbook.md#clawpoolbehind)"
        )
    return Finding("pool", "ok", f"{behind:,} facts behind")


def _folded(settings: LogSettings) -> tuple[dict[Place, int], dict[Place, int | None]]:
    facts, group = (CALLS, REWARDS), settings.catalogue().streams_group
    committed = committed_offsets(settings, group, facts, range(settings.partitions))
    return end_offsets(settings, facts), committed


def keys(records: Iterable[KeyRecorded], at_us: int) -> Finding:
    """Finds out which valid keys never end."""
    valid = [key for key in records if state_of(key, at_us) == "valid"]
    endless = sorted({key.name for key in valid if key.expires_us is None})
    if endless:
        names = ", ".join(endless[:5]) + (" …" if len(endless) > 5 else "")
        return Finding(
            "keys", "note", f"without an end: {names}; `claw keys create --expires-in 90d` makes one that ends"
        )
    return Finding("keys", "ok", f"{len(valid)} valid, each has an end" if valid else "none: see `claw keys create`")


def clocks(reports: Iterable[WorkerReported], at_us: int) -> Finding:
    """Finds out whether a worker's clock is ahead of this machine's; one that is behind looks like one that is silent."""
    ahead_s = {report.worker_id: (report.envelope.occurred_at_us - at_us) / 1e6 for report in reports}
    worst = max(ahead_s, key=lambda worker: ahead_s[worker], default=None)
    if worst is not None and ahead_s[worst] > AHEAD_MAX_S:
        what = f"worker {worst} reported {ahead_s[worst]:.0f} s from now"
        return Finding("clocks", "bad", f"{what}: rewards and completions are ordered by time; let NTP set both clocks")
    return Finding("clocks", "ok", "no worker's is ahead of this one")
