"""The keys of a log, and the acts on them: each appends records and returns once they are acknowledged.

A gateway has the newest record of each hash within two seconds. The key itself is made here, returned once, and in no record.
"""

import math
from collections.abc import Sequence
from contextlib import closing
from functools import partial

from msgspec.structs import replace

from claw_r1.claw.errors import CannotRun
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import Outgoing, readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.api_keys import Role, new_key
from claw_r1.schemas.envelopes import envelope, now_us
from claw_r1.schemas.events import Envelope, KeyRecorded
from claw_r1.schemas.topics import KEYS

PRODUCER = "claw keys"
HASH_SHOWN = 12
"""Characters of a hash by which a person names a key."""


def newest_keys(settings: LogSettings) -> list[KeyRecorded]:
    """Every key that the log knows, by name and age. Raises BrokerUnreachable, TopicMissing."""
    newest: dict[bytes | None, KeyRecorded] = {}
    for record in read_topics(settings, [KEYS]):
        if record.value is None:
            newest.pop(record.key, None)
        newest.update((record.key, event) for event in readable([record]) if isinstance(event, KeyRecorded))
    return sorted(newest.values(), key=lambda key: (key.name, key.envelope.occurred_at_us))


def state_of(key: KeyRecorded, at_us: int) -> str:
    """valid, expired or revoked."""
    if key.revoked:
        return "revoked"
    return "expired" if key.expires_us is not None and key.expires_us <= at_us else "valid"


def create(settings: LogSettings, key: KeyRecorded) -> tuple[str, KeyRecorded]:
    """A fresh key of these terms, whose digest is set here, with its record. Raises CannotRun where one of its name is valid."""
    if any(state_of(other, now_us()) == "valid" for other in newest_keys(settings) if other.name == key.name):
        raise CannotRun(f"a key called {key.name} is valid already: claw keys rotate {key.name}, or another name")
    secret, record = _fresh(key, key.envelope)
    append(settings, [record])
    return secret, record


def rotate(settings: LogSettings, name: str, overlap_us: int) -> tuple[str, KeyRecorded]:
    """A new key of the fields of the valid one of this name, for as long as that one was to live when it was made.

    The old one ends after the overlap, or when it would have anyway; so do those that are still ending. Raises CannotRun.
    """
    at_us = now_us()
    valid = [key for key in newest_keys(settings) if key.name == name and state_of(key, at_us) == "valid"]
    if not valid:
        raise CannotRun(f"no valid key is called {name}: claw keys create {name}")
    old = max(valid, key=lambda key: key.expires_us or math.inf)  # any other ends within an overlap
    lifetime_us = old.expires_us and old.expires_us - old.envelope.occurred_at_us
    stamp = partial(envelope, PRODUCER, causation_id=old.envelope.event_id)
    secret, record = _fresh(replace(old, expires_us=lifetime_us and at_us + lifetime_us), stamp())
    end_us = at_us + overlap_us
    ending = [replace(key, envelope=stamp(), expires_us=min(key.expires_us or end_us, end_us)) for key in valid]
    append(settings, [record, *ending])
    return secret, record


def revoke(settings: LogSettings, name: str) -> list[KeyRecorded]:
    """Take back all keys of this name, or the one of this hash; returns those that were not taken back before. Raises CannotRun."""
    keys = newest_keys(settings)
    chosen = [key for key in keys if key.name == name]
    if not chosen and len(name) >= HASH_SHOWN:
        chosen = [key for key in keys if key.digest.startswith(name.lower())]
    if not chosen:
        raise CannotRun(f"no key has the name or the hash {name}: claw keys list")
    revoked = [replace(key, envelope=envelope(PRODUCER), revoked=True) for key in chosen if not key.revoked]
    append(settings, revoked)
    return revoked


def append(settings: LogSettings, keys: Sequence[KeyRecorded]) -> None:
    """Returns once all are acknowledged. Raises LogError; what was appended by then stands."""
    if not keys:
        return
    with closing(EventProducer(settings)) as producer:
        sent = [producer.produce(Outgoing.of(KEYS, key.digest.encode(), key)) for key in keys]
        for future in sent:
            future.result()


def _fresh(key: KeyRecorded, stamp: Envelope) -> tuple[str, KeyRecorded]:
    role: Role = key.role  # type: ignore[assignment]  # the commands take no other word
    secret, entry = new_key(role)
    return secret, replace(key, envelope=stamp, digest=entry.partition(":")[2])
