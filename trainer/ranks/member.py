"""What every rank has, rank 0 included: its place among the others, its heartbeat, its own learner."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from trainer.compose import learner_of
from trainer.learn.learner import Learner
from trainer.ranks.group import RankGroup, connect, joined
from trainer.ranks.heartbeat import Heartbeat
from trainer.ranks.place import Place
from trainer.settings import TrainerSettings
from weights.device import resolved

TRAIN = Learner.train.__name__


@contextmanager
def member(
    settings: TrainerSettings, place: Place, stop: threading.Event, ended: Callable[[], dict[int, str]] = dict
) -> Iterator[tuple[Learner, RankGroup]]:
    """This rank among the others, until the block ends. An error that leaves the block ends all ranks.

    stop: set when any rank is asked to stop. ended: see `Heartbeat`. Raises as `learner_of`.
    """
    store = connect(place)
    heartbeat = Heartbeat(store, place, stop=stop, ended=ended)
    heartbeat.start()
    try:
        device = resolved(settings.device, sees_cuda=torch.cuda.is_available)
        with joined(place, store, device, settings.collective_timeout_s, heartbeat) as group:
            learner = learner_of(settings)
            group.limit(settings.collective_timeout_s)
            yield learner, group
            heartbeat.stop()
    except BaseException as error:
        heartbeat.fail(" ".join(f"{type(error).__name__}: {error}".split()))
        raise
