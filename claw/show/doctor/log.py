"""The part of `claw doctor` that asks the broker: its version
and topics, what a lost broker loses, and what stands still."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.keys.records import newest_keys, state_of
from claw_r1.claw.local.broker import resolve_broker
from claw_r1.claw.show.doctor.access import access_findings, wire
from claw_r1.claw.show.doctor.findings import Finding, checked, error, ok, warning
from claw_r1.datapool import FOLD_VERSION
from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.admin import TopicState, broker_settings, check_broker, describe_topics, diff_topics
from claw_r1.eventlog.kafka.consumer_groups import behind
from claw_r1.eventlog.kafka.ranges import stream_ranges
from claw_r1.eventlog.kafka.reader import committed_offsets
from claw_r1.eventlog.records import Place, readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import Event, KeyRecorded, StreamPosition
from claw_r1.schemas.topics import CALLS, POSITIONS, REWARDS, WORKERS

WAITS_S = {"connect_timeout_s": 3.0, "read_timeout_s": 5.0}
"""Shorter than a program's, for a broker that goes away."""
KEEP = "`claw broker` in another terminal keeps one running"
REPLICAS, INSYNC = 3, 2
NEWEST = ((CALLS, 2), (REWARDS, 2), (POSITIONS, 4), (WORKERS, 64))
"""How many records of a partition are looked at. The last offset
of a transaction is its end and no record."""
BEHIND_MAX = 5000
"""Facts that the pool may be behind without a word."""
AHEAD_MAX_S = 2.0
"""How far a clock may be ahead of ours."""
ALTER = "`claw broker tool configs --alter --topic {} --add-config {}`"


def log_findings(prefix: str) -> Iterator[Finding]:
    """Finds out whether a broker answers, and what on it would not hold."""
    try:
        with resolve_broker() as broker:
            settings = LogSettings(bootstrap_servers=broker.bootstrap, prefix=prefix).model_copy(update=WAITS_S)
            servers, names = settings.bootstrap_servers, check_broker(settings).brokers
            if broker.local is not None and broker.local.started_here:
                yield Finding("broker", "warning", f"none was running; {servers} was started for these lines", KEEP)
            else:
                yield Finding("broker", "ok", f"{servers} answers, with the brokers {', '.join(names)}")
            yield from checked("wire", lambda: wire(servers, secured=settings.secured))
            yield from checked("version", lambda: version(broker_settings(settings)))
            yield from access_findings(settings)
            yield from _of_topics(settings, describe_topics(settings))
    except (CannotRun, LogError) as away:
        yield Finding("broker", "error", str(away), "start it or set KAFKA_BOOTSTRAP_SERVERS")


def _of_topics(settings: LogSettings, states: Sequence[TopicState]) -> Iterator[Finding]:
    if not states:
        yield Finding("topics", "error", f"none with prefix {settings.prefix}", "`claw topics create`")
        return
    shape = {"partitions": states[0].partitions, "replication": states[0].replication}
    there = settings.model_copy(update=shape)
    newest = cache(lambda: _newest(there, states))
    yield from checked("topics", lambda: topics(diff_topics(there)))
    yield from checked("replication", lambda: replication(states, settings.replication))
    yield from checked("retention", lambda: retention(states))
    yield from checked("pool", lambda: pool(_spans(states), _committed(there)))
    yield from checked("keys", lambda: keys(newest_keys(there), now_us()))
    yield from checked("fold", lambda: fold(newest()))
    yield from checked("clocks", lambda: clocks(newest(), now_us()))


def _spans(states: Iterable[TopicState]) -> dict[Place, tuple[int, int]]:
    return {(at.name, part): (at.begin_offsets[part], end) for at in states for part, end in at.end_offsets.items()}


def _committed(settings: LogSettings) -> dict[Place, int | None]:
    group, numbers = settings.catalogue().streams_group, range(settings.partitions)
    return committed_offsets(settings, group, (CALLS, REWARDS), numbers)


def _newest(settings: LogSettings, states: Iterable[TopicState]) -> list[Event]:
    counts = {settings.catalogue().name(topic): count for topic, count in NEWEST}
    ranges = {
        place: (max(begin, end - counts[place[0]]), end)
        for place, (begin, end) in _spans(states).items()
        if place[0] in counts
    }
    return list(readable(stream_ranges(settings, ranges)))


def version(config: Mapping[str, str]) -> Finding:
    """Finds out whether the tests run on such a broker. config:
    the broker's; Kafka 4 has no setting of this name any more."""
    if older := config.get("inter.broker.protocol.version"):
        return warning(f"Kafka {older}: the tests run on Kafka 4", "upgrade the brokers")
    return ok("Kafka 4 or newer")


def topics(differences: Iterable[str]) -> Finding:
    """Finds out what else than retention differs."""
    others = [line for line in differences if ": retention." not in line]
    if not others:
        return ok("as the catalogue says")
    says = f"{len(others)} differ, such as {others[0]}"
    return error(says, "`claw topics create` or `claw topics diff`")


def replication(states: Iterable[TopicState], promised: int) -> Finding:
    """Finds out whether a lost broker loses what was acknowledged. promised: the replicas of the settings."""
    needed = max(REPLICAS, promised)
    weak = [each for each in states if each.replication < needed or each.min_insync < INSYNC]
    if not weak:
        return ok("records outlive a broker")
    worst = min(weak, key=lambda state: (state.min_insync, state.replication))
    says = f"{worst.name} has {worst.replication}, min.insync.replicas {worst.min_insync}"
    remedy = f"{needed} replicas, and " + ALTER.format("NAME", f"min.insync.replicas={INSYNC}")
    if worst.replication == promised == 1:
        return warning(f"{says}: a lost disk is lost data", remedy)
    if any(each.min_insync < INSYNC for each in weak):
        return error(f"{says}: one broker loses acknowledged records", remedy)
    if worst.replication < promised:
        return error(f"{says}: {promised} are promised", remedy)
    return warning(f"{says}: without one broker nothing is taken", remedy)


def retention(states: Iterable[TopicState]) -> Finding:
    """Finds out whether the broker removes facts, which a rebuild needs from the first one on."""
    limits = ("retention.ms", "retention.bytes")
    ending = [at.name for at in states if any(at.config.get(name, "-1") != "-1" for name in limits)]
    if not ending:
        return ok("facts are kept for ever")
    kept = ",".join(f"{name}=-1" for name in limits)
    says = f"the broker removes facts of {', '.join(ending)}"
    return error(says, ALTER.format(ending[0], kept))


def pool(spans: Mapping[Place, tuple[int, int]], committed: Mapping[Place, int | None]) -> Finding:
    """Finds out whether facts wait to be folded. committed: by the stream processors; None: never."""
    waiting = behind(spans, committed)
    says = f"{waiting:,} facts behind"
    if waiting and all(at is None for at in committed.values()):
        return error(f"{says}: none was ever read", "`claw streams`")
    if waiting > BEHIND_MAX:
        return warning(says, "one more `claw streams`")
    return ok(says)


def keys(records: Iterable[KeyRecorded], at_us: int) -> Finding:
    """Finds out which valid keys never end."""
    valid = [key for key in records if state_of(key, at_us) == "valid"]
    endless = sorted({key.name for key in valid if key.expires_us is None})
    if not endless:
        return ok(f"{len(valid)} valid, each has an end")
    says = f"{len(endless)} without an end: {', '.join(endless[:5])}"
    return warning(says, "`claw keys create --expires-in 90d`")


def fold(events: Iterable[Event]) -> Finding:
    """Finds out whether another version makes the pool."""
    folds = {each.fold_version for each in events if isinstance(each, StreamPosition)}
    if others := folds - {FOLD_VERSION}:
        says = f"the pool is of fold {min(others)}, this is {FOLD_VERSION}"
        return error(says, "`claw rebuild`, or one version on all hosts")
    return ok(f"of this version's fold, {FOLD_VERSION}")


def clocks(events: Iterable[Event], at_us: int) -> Finding:
    """Finds out whether the clock of a writer is ahead of ours; one that is behind cannot be told from silence."""
    stamps = [event.envelope for event in events if hasattr(event, "envelope")]
    newest = max(stamps, key=lambda stamp: stamp.occurred_at_us, default=None)
    ahead_s = (newest.occurred_at_us - at_us) / 1e6 if newest else 0
    if newest is None or ahead_s <= AHEAD_MAX_S:
        return ok("none is ahead of ours")
    says = f"{newest.producer} wrote {ahead_s:.0f} s from now, and rewards go by time"
    return error(says, "let NTP set both (`timedatectl set-ntp true`)")
