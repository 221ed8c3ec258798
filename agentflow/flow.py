"""The part that an agent author writes, and the playing of one episode of it to an end that is always reported.

Invariant: whatever a flow does, its trajectory is completed or failed, and the runner lives on.
"""

import asyncio
import importlib.util
import sys
from abc import ABC, abstractmethod
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import structlog

from claw_r1.agentflow.bodies import JsonObject, TrajectoryOutcome
from claw_r1.agentflow.episode import Episode, EpisodeResult
from claw_r1.agentflow.errors import AgentFlowError, FlowNotFound, RewardRefused
from claw_r1.agentflow.settings import AgentFlowSettings
from claw_r1.runtime.modules import importable

ENTRY_POINTS = "claw.flows"
log = structlog.get_logger()


class AgentFlow(ABC):
    """An agent and its environment. One object plays all episodes at once: keep state in `run`, not in `self`."""

    retries: ClassVar[int] = 0
    """How often an episode is begun again that failed before its first call or reward, as an environment that
    did not start."""

    def task(self, seed: int) -> JsonObject:
        """The task of the group with this seed, a JSON object; a function of the seed and nothing else."""
        return {"seed": seed}

    @abstractmethod
    async def run(self, episode: Episode) -> None:
        """Play one episode. An exception makes it a failed one, which is trained only if somebody judges its outcome."""


async def play(flow: AgentFlow, episode: Episode, settings: AgentFlowSettings) -> EpisodeResult:
    """Run the flow, then report how it ended. Raises nothing but CancelledError, after a short farewell."""
    failure: str | None = None
    try:
        await _run(flow, episode)
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is None or task.cancelling():
            await _farewell(episode, settings)
            raise
        failure = _log_failure(episode, error)  # of something that the flow itself cancelled
    except Exception as error:  # noqa: BLE001  # the flow is foreign code: its failure is an outcome of the episode
        failure = _log_failure(episode, error)
    failure, reported = await _reported(episode, failure)
    return EpisodeResult(
        trajectory=episode.trajectory,
        status=_status(failure),
        reported=reported,
        reward=episode.earned,
        calls=episode.calls,
        unanswered=episode.unanswered,
        policy_versions=tuple(sorted(episode.policy_versions)),
        transcript=tuple(episode.transcript),
        failure=failure,
    )


async def _run(flow: AgentFlow, episode: Episode) -> None:
    """The flow to its end, within its limits. Raises EpisodeLimitExceeded, and what the flow raises."""
    for retry in count(1):
        try:
            await _run_in_time(flow, episode)
        except Exception as error:
            has_effects = episode.calls or episode.rewards or episode.outcome is not None or episode.exceeded
            if has_effects or retry > flow.retries:
                raise
            log.warning("episode_begun_again", reason=f"{type(error).__name__}: {error}", retry=retry)
        else:
            return


async def _run_in_time(flow: AgentFlow, episode: Episode) -> None:
    try:
        async with asyncio.timeout(episode.limits.seconds) as limit:
            await flow.run(episode)
    except TimeoutError:
        if not limit.expired():
            raise
    episode.keep_limits(calls=episode.calls)  # a flow may have caught what it went beyond
    if episode.refusal is not None:  # and this
        raise episode.refusal


def _log_failure(episode: Episode, error: BaseException) -> str:
    """The reason. A bug in a flow needs its traceback, a refused request does not."""
    ids = {"group_id": episode.trajectory.group_id, "trajectory_id": episode.trajectory.trajectory_id}
    expected = isinstance(error, AgentFlowError)
    reason = f"{type(error).__name__}: {error}"
    log.error("episode_failed", reason=reason, exc_info=None if expected else error, **ids)
    return reason


def _status(failure: str | None) -> TrajectoryOutcome:
    return "completed" if failure is None else "failed"


async def _reported(episode: Episode, failure: str | None) -> tuple[str | None, bool]:
    """The failure, and whether the gateway knows how the episode ended."""
    for _ in range(2):
        try:
            await episode.complete(_status(failure))
        except RewardRefused as error:  # which no longer waits, so it is refused once
            failure = failure or _log_failure(episode, error)
        except AgentFlowError as error:
            log.error("completion_lost", trajectory_id=episode.trajectory.trajectory_id, reason=str(error))
            return failure, False
        else:
            return failure, True
    return failure, False


async def _farewell(episode: Episode, settings: AgentFlowSettings) -> None:
    try:
        async with asyncio.timeout(settings.farewell_timeout_s):
            await _reported(episode, "stopped")
    except TimeoutError:
        log.warning("farewell_timed_out", trajectory_id=episode.trajectory.trajectory_id)


def load_flow(name: str) -> AgentFlow:
    """The flow that `module:Class`, `path/to/file.py:Class` or an entry point of the group `claw.flows` names.

    It is made without arguments. Raises FlowNotFound.
    """
    try:
        kind = _named(name)
        if not (isinstance(kind, type) and issubclass(kind, AgentFlow)):
            raise FlowNotFound(f"{name!r} is not a subclass of claw_r1.agentflow.flow.AgentFlow")
        return kind()
    except FlowNotFound:
        raise
    except Exception as error:  # foreign code, while it is imported
        raise FlowNotFound(f"cannot load {name!r}: {type(error).__name__}: {error}") from error


def _named(name: str) -> object:
    """Returns the object that a name stands for. Raises FlowNotFound, and whatever importing it raises."""
    place, _, class_name = name.rpartition(":")
    if not place:
        points = entry_points(group=ENTRY_POINTS, name=name)
        if not points:
            raise FlowNotFound(f"{name!r} is not module:Class, file.py:Class or an entry point of {ENTRY_POINTS}")
        return next(iter(points)).load()
    return getattr(module_named(place), class_name)


def module_named(place: str) -> ModuleType:
    """The module of `path/to/file.py`, else by its name. Raises FlowNotFound, and whatever importing it raises."""
    if place.endswith(".py"):
        return _module_at(Path(place))
    importable()
    return importlib.import_module(place)


def _module_at(path: Path) -> ModuleType:
    """The module of a file, which may import what lies beside it."""
    importable(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(f"claw_flow_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FlowNotFound(f"no file {str(path)!r}")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look there for their module
    spec.loader.exec_module(module)
    return module
