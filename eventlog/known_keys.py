"""API keys as the log knows them: the newest record per hash, and those of a program's settings.

Input: the topic `keys`, key sha256 hex. A replay only rebuilds the table. `apply` runs on a follower's thread, `key` on any:
entries are replaced whole, so no lock is needed.
"""

import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import cast

import structlog

from claw_r1.eventlog.records import Record
from claw_r1.schemas.api_keys import ApiKey, Role
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import KeyRecorded

log = structlog.get_logger()


class KnownKeys:
    """Keys by their hashes."""

    def __init__(self, configured: Sequence[ApiKey] = ()) -> None:
        """configured: of the settings; a record of the same hash counts before."""
        self._configured = {key.digest: key for key in configured}
        self._recorded: dict[bytes, ApiKey] = {}

    def apply(self, record: Record) -> None:
        """Take over the newest record of a key; a tombstone removes it."""
        try:
            digest = bytes.fromhex((record.key or b"").decode("ascii"))
            event = None if record.value is None else record.event()
        except (UndecodableRecord, ValueError) as broken:  # the older record stays
            log.warning("key_record_unusable", reason=getattr(broken, "reason", "its key is no hash"))
            return
        if event is None:
            self._recorded.pop(digest, None)
        elif isinstance(event, KeyRecorded):
            self._recorded[digest] = _api_key(digest, event)

    def known(self) -> list[ApiKey]:
        """Returns all of them, also those that are not valid any more."""
        return [*{**self._configured, **self._recorded}.values()]

    def key(self, secret: bytes) -> ApiKey | None:
        """The key itself to what is known of it; None where nothing is. Whether it is valid now says `ApiKey.why_invalid`."""
        return self.by_digest(sha256(secret).digest())

    def by_digest(self, digest: bytes) -> ApiKey | None:
        """Returns the key with this sha256, under the rules of `key`."""
        key = self._recorded.get(digest) or self._configured.get(digest)
        return key if key is not None and hmac.compare_digest(digest, key.digest) else None


def _api_key(digest: bytes, event: KeyRecorded) -> ApiKey:
    return ApiKey(
        role=cast("Role", event.role),  # one that is not in the table may do nothing
        digest=digest,
        name=event.name,
        expires_us=event.expires_us,
        revoked=event.revoked,
        scope=event.scope,
        aliases=event.aliases,
        sampling=event.sampling,
        strip_strict=event.strip_strict,
        idle_s=event.idle_s,
    )
