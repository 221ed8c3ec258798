"""The pool as a reader sees it: rows of three compacted topics, offered only when they fit together.

Input: claw.datapool.{steps,trajectories,groups}, read_committed, from the beginning. The topics are read independently,
so a group is offered only when its rows match the chain of digests; until then it is simply not there yet.
"""

from collections.abc import Callable

from eventlog.settings import LogSettings
from schemas.events import GroupRecord, StepRecord, StepTokens, TrajectoryRecord


class PoolView:
    """Follows the pool in a thread. All reads are snapshots and safe from any thread."""

    def __init__(self, settings: LogSettings, *, wanted: Callable[[GroupRecord], bool] | None = None) -> None:
        """`wanted` is asked for each version of a group (default: all); rows of a group that is not wanted are dropped."""
        raise NotImplementedError

    def start(self) -> None:
        """Start following."""
        raise NotImplementedError

    def wait_caught_up(self, timeout_s: float) -> None:
        """Block until everything that stood in the topics at the call is applied. Raises TimeoutError, ViewFailed."""
        raise NotImplementedError

    def groups(self) -> list[GroupRecord]:
        """Every consistent group, ready or not, in order of group_id. Raises ViewFailed."""
        raise NotImplementedError

    def group(self, group_id: str) -> GroupRecord | None:
        """The group if its rows fit together, else None."""
        raise NotImplementedError

    def trajectory(self, group_id: str, trajectory_id: str) -> TrajectoryRecord | None:
        """The latest row."""
        raise NotImplementedError

    def steps(self, group_id: str, trajectory_id: str) -> list[StepRecord]:
        """Captured steps of a trajectory in the order of `TrajectoryRecord.calls`."""
        raise NotImplementedError

    def tokens(self, group_id: str, trajectory_id: str, call_id: str) -> StepTokens | None:
        """Tokens of a step, or None."""
        raise NotImplementedError

    def forget(self, group_id: str) -> None:
        """Drop the rows of a group and ignore whatever else comes for it: bounds memory once it is trained."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop following. Idempotent."""
        raise NotImplementedError
