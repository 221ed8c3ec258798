"""The choice of the published version that this worker should serve: the latest in the log, and never backwards within
a run."""

import asyncio
from functools import partial

import structlog

from claw_r1.schemas.events import WeightsPublished
from claw_r1.schemas.http import version_label

log = structlog.get_logger()

LOADS_MAX = 2
"""Engines that may end with one version before it is given up, in a row: a kill may meet one by accident."""


def accepts(current: WeightsPublished | None, event: WeightsPublished, *, model_id: str, run_id: str | None) -> bool:
    """Returns whether `event` replaces `current`; pure.

    The same version again is accepted with the same digest only: a resumed trainer publishes a new offer url.
    """
    if event.model_id != model_id or run_id not in (None, event.run_id):
        return False
    if current is None or event.run_id != current.run_id:
        return True
    if event.version == current.version:
        return event.digest == current.digest
    return event.version > current.version


def is_same_weights(left: WeightsPublished | None, right: WeightsPublished | None) -> bool:
    """Returns whether both are the same version of the same run."""
    if left is None or right is None:
        return left is right
    return (left.run_id, left.version) == (right.run_id, right.version)


def lag(latest: WeightsPublished | None, loaded: WeightsPublished | None) -> str | None:
    """Returns why nothing is trained that a worker samples now; None where it is trained, or where the bound is not in
    the log."""
    if latest is None or latest.staleness_max is None or loaded is latest:
        return None
    if loaded is None or loaded.run_id != latest.run_id:
        return f"it has no weights of run {latest.run_id} yet"
    versions = latest.version - loaded.version
    if versions <= latest.staleness_max:
        return None
    return f"{versions} versions behind {latest.run_id}/{latest.version}, which may be {latest.staleness_max}"


class Targets:
    """The newest accepted version, what to serve instead where engines end with it, and a way to wait for a newer one.

    Lives in one event loop.
    """

    def __init__(self, model_id: str, run_id: str | None) -> None:
        self._model_id = model_id
        self._run_id = run_id
        self._changed = asyncio.Event()
        self.latest: WeightsPublished | None = None
        self.caught_up = asyncio.Event()
        self._served: WeightsPublished | None = None
        """The last version that an engine loaded and showed that it serves."""
        self._failed: tuple[str, int] = ("", 0)
        """Digest of the version that an engine ended with last, and how many did in a row."""
        self.refusal: str | None = None
        """The reason why the newest version is loaded no more; None where it is not given up."""

    @property
    def goal(self) -> WeightsPublished | None:
        """The version to load: the newest; once that is given up, because engines ended with it, the last one that was served."""
        return self.latest if self.refusal is None else self._served

    def served(self, event: WeightsPublished) -> None:
        """An engine has this version."""
        renewed = is_same_weights(self.latest, event)
        self._served, self._failed = self.latest if renewed else event, ("", 0)

    def failed(self, event: WeightsPublished, reason: str) -> None:
        """An engine ended while it loaded this version: so may anybody's, but not two in a row.

        One that was served before is not given up: then it is the engines that fail.
        """
        count = 1 + (self._failed[1] if self._failed[0] == event.digest else 0)
        self._failed = (event.digest, count)
        if is_same_weights(self._served, event):
            return
        if count >= LOADS_MAX and self.latest is not None and event.digest == self.latest.digest:
            label = version_label(event.run_id, event.version)
            self.refusal = f"{label} is given up, {count} engines ended while they loaded it: {reason}"
            log.error("version_given_up", run_id=event.run_id, version=event.version, reason=reason)

    def consider(self, event: WeightsPublished) -> None:
        """Make the event the latest target if it replaces the current one. The version that was served is known by its last
        announcement, too: the first one names no export."""
        replaces = partial(accepts, event=event, model_id=self._model_id, run_id=self._run_id)
        if is_same_weights(self._served, event) and replaces(self._served):
            self._served = event
            self._changed.set()
        if replaces(self.latest):
            if not is_same_weights(self.latest, event):
                self.refusal = None
            self.latest = event
            self._changed.set()
        elif is_same_weights(self.latest, event):
            log.error("version_reused_with_other_bytes", run_id=event.run_id, version=event.version)

    async def changed(self, timeout_s: float | None = None) -> None:
        """Until a newer target is there, or the time is over."""
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return
        self._changed.clear()
