"""Which published version this worker should serve: the latest in the log, and never backwards within a run."""

import asyncio

import structlog

from schemas.events import WeightsPublished

log = structlog.get_logger()


def accepts(current: WeightsPublished | None, event: WeightsPublished, *, model_id: str, run_id: str | None) -> bool:
    """Whether `event` replaces `current`; pure.

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
    """Whether both are the same version of the same run."""
    if left is None or right is None:
        return left is right
    return (left.run_id, left.version) == (right.run_id, right.version)


def lag(latest: WeightsPublished | None, loaded: WeightsPublished | None) -> str | None:
    """Why nothing is trained that a worker samples now; None where it is trained, or where the bound is not in the log."""
    if latest is None or latest.staleness_max is None or loaded is latest:
        return None
    if loaded is None or loaded.run_id != latest.run_id:
        return f"it has no weights of run {latest.run_id} yet"
    versions = latest.version - loaded.version
    if versions <= latest.staleness_max:
        return None
    return f"{versions} versions behind {latest.run_id}/{latest.version}, which may be {latest.staleness_max}"


class Targets:
    """The newest accepted version, and a way to wait for a newer one. Lives in one event loop."""

    def __init__(self, model_id: str, run_id: str | None) -> None:
        self._model_id = model_id
        self._run_id = run_id
        self._changed = asyncio.Event()
        self.latest: WeightsPublished | None = None
        self.caught_up = asyncio.Event()

    def consider(self, event: WeightsPublished) -> None:
        """Make the event the latest target if it replaces the current one."""
        if accepts(self.latest, event, model_id=self._model_id, run_id=self._run_id):
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
