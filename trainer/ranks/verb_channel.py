"""Rank 0 sends verbs of the `Learner` with their arguments; each rank performs them on its own one.

Invariant: a verb ends the same way on every rank, or it ends every rank.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trainer.errors import RankLost, Stopped, TrainerError
from trainer.learn.learner import Learner
from trainer.ranks.group import RankGroup
from trainer.ranks.heartbeat import Heartbeat

Arguments = tuple[Any, ...]  # Any: of any verb
TRAIN = Learner.train.__name__
LEAVE = "leave"
DISK = "OSError"


class VerbChannel:
    """One end of it; `send` is rank 0's, `receive` is that of all others."""

    def __init__(self, group: RankGroup, heartbeat: Heartbeat) -> None:
        self._group = group
        self._heartbeat = heartbeat

    def send(self, verb: str, *arguments: object) -> None:
        """To all ranks, which have finished the verb before."""
        self._group.call()
        self._group.broadcast((verb, arguments))

    def receive(self) -> tuple[str, Arguments]:
        """Waits for as long as rank 0 has nothing to do."""
        self._group.listen()
        verb, arguments = self._group.broadcast()
        return verb, arguments

    @contextmanager
    def performed(self) -> Iterator[None]:
        """Around a verb. A TrainerError in it is one that all ranks raise; an OSError of some is one of all.

        Anything else, or an error on some ranks only, is the end of this rank; the heartbeat tells the others.
        """
        problem: Exception | None = None
        try:
            try:
                yield
            except (TrainerError, OSError) as error:
                problem = error
            kind = DISK if isinstance(problem, OSError) else type(problem).__name__
            outcomes = self._group.gather(problem and (kind, f"{type(problem).__name__}: {problem}"))
        except RuntimeError:  # of torch: ours, or that of a collective whose other end is gone
            self._heartbeat.suspect()
            raise
        failed = {rank: outcome for rank, outcome in enumerate(outcomes) if outcome is not None}
        kinds = {kind for kind, _ in failed.values()}
        reasons = "; ".join(f"rank {rank}: {message}" for rank, (_, message) in failed.items())
        if kinds not in (set(), {DISK}) and (len(failed) < len(outcomes) or len(kinds) > 1):
            raise RankLost(reasons)
        if problem is not None:
            raise problem
        if failed:
            raise OSError(reasons)

    def leading(self, before_micro_batch: Callable[[], None]) -> Callable[[], None]:
        """Rank 0's hook before each micro-batch: whether to go on is decided there, and is the same everywhere."""

        def hook() -> None:
            try:
                before_micro_batch()
            except Stopped:
                self._group.broadcast(False)
                raise
            self._group.broadcast(True)

        return hook

    def follow(self) -> None:
        """The hook of the others. Raises Stopped when rank 0 did."""
        if not self._group.broadcast():
            raise Stopped("rank 0 stops")
