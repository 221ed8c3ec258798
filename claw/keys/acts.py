"""The commands of `claw keys` and their output. A key itself is printed by the command that makes it, and never
again."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.keys import records
from claw_r1.claw.keys.records import HASH_SHOWN, newest_keys, state_of
from claw_r1.consumers.text_table import table
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import KeyRecorded
from claw_r1.schemas.json_values import JsonDict

LAST_US = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 10**6
"""The last day that has a date; 0.1.0 made keys with an end behind it."""


def row(key: KeyRecorded, at_us: int) -> JsonDict:
    """A key as JSON has it, without what would be a secret: there is none in its record."""
    expires = None if key.expires_us is None else datetime.fromtimestamp(min(key.expires_us, LAST_US) // 10**6, UTC)
    return {
        "name": key.name,
        "role": key.role,
        "hash": key.digest[:HASH_SHOWN],
        "expires": expires and expires.isoformat(timespec="seconds"),
        "scope": key.scope,
        "state": state_of(key, at_us),
        "aliases": key.aliases,
        "sampling": key.sampling,
        "strip_strict": key.strip_strict,
        "idle_s": key.idle_s,
    }


def run_create(key: KeyRecorded, *, prefix: str) -> Answer:
    """Makes the new key."""
    with log_for_reading(prefix) as settings:
        secret, record = records.create(settings, key)
    return _shown(secret, record)


def run_rotate(name: str, overlap_us: int, *, prefix: str) -> Answer:
    """Makes the key that takes the place of the old one."""
    with log_for_reading(prefix) as settings:
        secret, record = records.rotate(settings, name, overlap_us)
    return _shown(secret, record)


def run_revoke(name: str, *, prefix: str) -> Answer:
    """Exit code 1 when all of it was revoked before."""
    with log_for_reading(prefix) as settings:
        revoked = [row(key, now_us()) for key in records.revoke(settings, name)]
    lines = [f"{key['name']} {key['hash']} is revoked" for key in revoked]
    return Answer({"revoked": revoked}, lines or f"{name} was revoked before", 0 if revoked else 1)


def run_list(*, prefix: str) -> Answer:
    """Lists every key that the log knows."""
    with log_for_reading(prefix) as settings:
        rows = [row(key, now_us()) for key in newest_keys(settings)]
    hint = None if rows else "the log has no keys; `claw keys create NAME` makes one"
    return Answer({"keys": rows}, as_text(rows) if rows else (), hint=hint)


def as_text(rows: Iterable[JsonDict]) -> Iterator[str]:
    """A table."""
    head = ("name", "role", "hash", "expires", "scope", "state")
    yield from table([head, *(tuple(each[name] or "-" for name in head) for each in rows)])


def _shown(secret: str, record: KeyRecorded) -> Answer:
    hint = f"the key of {record.name} ({record.role}), shown this once; in force within 2 s"
    return Answer({"key": secret, **row(record, now_us())}, secret, hint=hint)
