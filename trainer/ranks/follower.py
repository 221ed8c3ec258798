"""Every rank but the first: it performs what rank 0 sends, until rank 0 sends it away."""

from collections.abc import Iterator
from typing import Any

import structlog

from claw_r1.runtime.stop_signals import stop_event
from claw_r1.trainer.errors import RankLost, TrainerError
from claw_r1.trainer.learn.learner import Learner
from claw_r1.trainer.ranks.member import TRAIN, member
from claw_r1.trainer.ranks.place import RankPlace
from claw_r1.trainer.ranks.process_group import LEAVE, RankGroup
from claw_r1.trainer.settings import TrainerSettings

log = structlog.get_logger()

VERBS = frozenset({
    TRAIN, "examined", "named_tensors", "adapter_tensors", "logprobs", "hashed_critic", "save", "load",
})  # fmt: skip


def follow(settings: TrainerSettings, place: RankPlace) -> int:
    """Runs until the run is over or stopped. Exit status; on a failure rank 0 gives the reason."""
    structlog.contextvars.bind_contextvars(rank=place.rank)
    stop = stop_event()  # rank 0 hears of it by the heartbeat, and decides
    try:
        with member(settings, place, stop) as (learner, group):
            while _obey(learner, group) != LEAVE:
                pass
    except TrainerError as error:
        log.warning("rank_ended", error=str(error))
        return 2
    return 0


def _obey(learner: Learner, group: RankGroup) -> str:
    """The next verb, performed."""
    verb, arguments = group.receive()
    try:
        with group.performed():
            _perform(learner, group, verb, arguments)
    except RankLost:
        raise
    except (TrainerError, OSError):
        pass  # rank 0 has it, too, and knows what to do
    return verb


def _perform(learner: Learner, group: RankGroup, verb: str, arguments: tuple[Any, ...]) -> None:  # Any: of any verb
    if verb == TRAIN:
        (batch,) = arguments
        learner.train(batch, group.following)
    elif verb in VERBS:
        result = getattr(learner, verb)(*arguments)
        if callable(result):  # what is left to do of it: the files of a checkpoint
            result()
        if isinstance(result, Iterator):  # each step may be a collective
            for _ in result:
                pass
