"""Bring one engine to a version that lies in this host's memory: pause → start → update → finish(label) → resume.

The bytes were verified before the pause, and all ranks of an engine load the same copy. So only the engine can
fail here: any failure raises EngineLost, and the caller starts a new one. An engine is never of two versions.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from claw_r1.schemas.http import version_label


class EngineControl(Protocol):
    """The five steps of an update; claw_r1.rollout.engine_client has them over HTTP. Each raises EngineLost."""

    async def pause(self) -> None: ...
    async def start(self) -> None: ...
    async def update(self, update_info: Mapping[str, object]) -> None: ...
    async def finish(self, label: str) -> None: ...
    async def resume(self) -> None: ...


async def load(
    engine: EngineControl, update: Callable[[], Awaitable[None]], run_id: str, version: int
) -> dict[str, float]:
    """Milliseconds of each phase, and `paused`, the time without sampling. update: replaces the weights of the paused engine."""
    label = version_label(run_id, version)
    began = time.monotonic()
    phases_ms: dict[str, float] = {}
    for name, step in (
        ("pause", engine.pause),
        ("start", engine.start),
        ("load", update),
        ("finish", partial(engine.finish, label)),
        ("resume", engine.resume),
    ):
        at = time.monotonic()
        await step()
        phases_ms[name] = round((time.monotonic() - at) * 1000, 1)
    return {**phases_ms, "paused": round((time.monotonic() - began) * 1000, 1)}
