"""Compares two pools of the same facts in other places: equal except for the facts' positions."""

import msgspec

from claw_r1.consumers.verify.pool import TopicKey, digest, wrong_rows
from claw_r1.consumers.verify.report import Report
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.events import Event, GroupRecord, StepRecord, TrajectoryRecord
from claw_r1.schemas.topics import GROUPS, STEPS, TRAJECTORIES


def compare(settings: LogSettings, other: LogSettings, report: Report) -> None:
    """Reports each row of the one pool that the other one has not, or has otherwise. Raises BrokerUnreachable, TopicMissing."""
    rows = rows_of(settings)
    report.counts["rows_compared"] += len(rows)
    for (topic, key), kind in wrong_rows(rows_of(other), rows).items():
        report.found(f"{kind}_against", f"{topic} {key.decode('utf-8', 'replace')}")


def rows_of(settings: LogSettings) -> dict[TopicKey, bytes]:
    """The digest of each row of the pool, without places."""
    catalogue = settings.catalogue()
    rows: dict[TopicKey, bytes] = {}
    for record in read_topics(settings, [STEPS, TRAJECTORIES, GROUPS]):
        key = catalogue.topic(record.topic).name, record.key or b""
        if record.value is None:
            rows.pop(key, None)
        else:
            rows[key] = digest(encode(placeless(decode(record.value))))
    return rows


def placeless(row: Event) -> Event:
    """The row without its facts' positions, and without the digests that depend on them."""
    if isinstance(row, StepRecord):
        return msgspec.structs.replace(row, position=None)
    if isinstance(row, TrajectoryRecord):
        return msgspec.structs.replace(row, offsets=(), digest="")
    if isinstance(row, GroupRecord):
        members = (msgspec.structs.replace(member, digest="") for member in row.members)
        return msgspec.structs.replace(row, members=tuple(members), digest="")
    return row
