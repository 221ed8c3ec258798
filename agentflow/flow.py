"""What an agent author writes, and how one episode of it is played to an end that is always reported.

Invariant: whatever a flow does, its trajectory is completed or failed, and the runner lives on.
"""

import asyncio
import importlib
import sys
from abc import ABC, abstractmethod
from pathlib import Path

import structlog

from agentflow.bodies import JsonObject, TrajectoryOutcome
from agentflow.episode import Episode, EpisodeResult
from agentflow.errors import AgentFlowError, FlowNotFound
from agentflow.settings import AgentFlowSettings

log = structlog.get_logger()


class AgentFlow(ABC):
    """An agent and its environment. One object plays all episodes at once: keep state in `run`, not in `self`."""

    def task(self, seed: int) -> JsonObject:
        """The task of the group with this seed, a JSON object; a function of the seed and nothing else."""
        return {"seed": seed}

    @abstractmethod
    async def run(self, episode: Episode) -> None:
        """Play one episode. An exception makes it a failed one, which is trained only if somebody judges its outcome."""


async def play(flow: AgentFlow, episode: Episode, settings: AgentFlowSettings) -> EpisodeResult:
    """Run the flow, then report how it ended. Raises nothing but CancelledError, after a short farewell."""
    status: TrajectoryOutcome = "failed"
    try:
        await flow.run(episode)
        status = "completed"
    except asyncio.CancelledError:
        await _farewell(episode, settings)
        raise
    except Exception as error:  # noqa: BLE001  # the flow is foreign code: its failure is an outcome of the episode
        _log_failure(episode, error)
    reported = await _report(episode, status)
    return EpisodeResult(
        trajectory=episode.trajectory,
        status=status,
        reported=reported,
        reward=episode.earned,
        calls=episode.calls,
        policy_versions=tuple(sorted(episode.policy_versions)),
        transcript=tuple(episode.transcript),
    )


def _log_failure(episode: Episode, error: Exception) -> None:
    """A bug in a flow needs its traceback, a refused request does not."""
    ids = {"group_id": episode.trajectory.group_id, "trajectory_id": episode.trajectory.trajectory_id}
    expected = isinstance(error, AgentFlowError)
    log.error("episode_failed", reason=f"{type(error).__name__}: {error}", exc_info=None if expected else error, **ids)


async def _report(episode: Episode, status: TrajectoryOutcome) -> bool:
    try:
        await episode.complete(status)
    except AgentFlowError as error:
        log.error("completion_lost", trajectory_id=episode.trajectory.trajectory_id, reason=str(error))
        return False
    return True


async def _farewell(episode: Episode, settings: AgentFlowSettings) -> None:
    try:
        async with asyncio.timeout(settings.farewell_timeout_s):
            await _report(episode, "failed")
    except TimeoutError:
        log.warning("farewell_timed_out", trajectory_id=episode.trajectory.trajectory_id)


def load_flow(name: str) -> AgentFlow:
    """The flow that `module:Class` names, made without arguments. Raises FlowNotFound."""
    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name:
        raise FlowNotFound(f"{name!r} is not of the form module:Class")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # One's own flow lies where one works, installed or not.
    try:
        flow = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise FlowNotFound(f"cannot load {name!r}: {error}") from error
    if not (isinstance(flow, type) and issubclass(flow, AgentFlow)):
        raise FlowNotFound(f"{name!r} is not a subclass of agentflow.flow.AgentFlow")
    return flow()
