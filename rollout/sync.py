"""Bring one engine to one published version: source → pause → start → update → finish(label) → resume.

Every phase has a deadline. A source that fails leaves the old weights and the old label, exactly, and the next source
is tried; anything else that fails raises EngineLost, and the caller starts a new engine.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rollout.errors import SourceFailed
from schemas.events import WeightsPublished
from schemas.http import version_label


class EngineControl(Protocol):
    """The five steps of an update; rollout.engine_client has them over HTTP."""

    async def pause(self) -> None: ...
    async def start(self) -> None: ...
    async def update(self, update_info: dict[str, object], timeout_s: float) -> None: ...
    async def finish(self, label: str | None = None) -> None: ...
    async def resume(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """Where the tensors come from, as fields of the plugin's ClawUpdateInfo, and how long that may take."""

    name: str
    fields: dict[str, object]
    timeout_s: float


# Opening a source may itself fail (SourceFailed), or there is none of its kind (None).
OpenSource = Callable[[WeightsPublished], Awaitable[Source | None]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the engine serves now, and what it took."""

    source: str
    seconds: float
    paused_s: float


async def sync(engine: EngineControl, target: WeightsPublished, sources: Sequence[OpenSource]) -> Loaded:
    """Load `target` from the first source that has it. Raises SourceFailed with every reason, or EngineLost."""
    began = time.monotonic()
    reasons: list[str] = []
    async for source in _opened(target, sources, reasons):
        paused_at = time.monotonic()
        try:
            await _load(engine, target, source)
        except SourceFailed as error:
            reasons.append(f"{source.name}: {error}")
            continue
        now = time.monotonic()
        return Loaded(source.name, now - began, now - paused_at)
    raise SourceFailed("; ".join(reasons) or "the event names neither a transfer server nor a checkpoint")


async def _opened(target: WeightsPublished, sources: Sequence[OpenSource], reasons: list[str]) -> AsyncIterator[Source]:
    for open_source in sources:
        try:
            source = await open_source(target)
        except SourceFailed as error:
            reasons.append(str(error))
            continue
        if source is not None:
            yield source


async def _load(engine: EngineControl, target: WeightsPublished, source: Source) -> None:
    await engine.pause()
    await engine.start()
    try:
        await engine.update({"manifest": manifest_json(target), **source.fields}, source.timeout_s)
    except SourceFailed:
        # The plugin touches no weight before it has all of them, so an update of nothing puts the old ones back.
        await engine.start()
        await engine.finish()
        await engine.resume()
        raise
    await engine.finish(version_label(target.run_id, target.version))
    await engine.resume()


def manifest_json(target: WeightsPublished) -> dict[str, object]:
    """The published manifest in the plugin's form; the committed event, not the transfer server, says what is loaded."""
    tensors = [{"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)} for spec in target.manifest]
    return {"digest": target.digest, "tensors": tensors}


async def from_checkpoint(load_timeout_s: float, target: WeightsPublished) -> Source | None:
    """The HF directory that the event names, if it names one."""
    if target.checkpoint_uri is None:
        return None
    return Source("checkpoint", {"checkpoint_uri": target.checkpoint_uri}, load_timeout_s)
