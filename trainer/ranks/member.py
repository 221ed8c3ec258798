"""The equipment of every rank, rank 0 included: its place among the others, its heartbeat, its own learner."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from claw_r1.trainer.compose import learner_of
from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.trainer.learn.learner import Learner
from claw_r1.trainer.ranks.heartbeat import Heartbeat
from claw_r1.trainer.ranks.place import RankPlace
from claw_r1.trainer.ranks.process_group import RankGroup, connect, joined
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.weights.device import resolved

TRAIN = Learner.train.__name__


@contextmanager
def member(
    settings: TrainerSettings, place: RankPlace, stop: threading.Event, ended: Callable[[], dict[int, str]] = dict
) -> Iterator[tuple[Learner, RankGroup]]:
    """This rank among the others, until the block ends. An error that leaves the block ends all ranks.

    stop: set when any rank is asked to stop. ended: see `Heartbeat`. Raises as `learner_of` and `check_devices`.
    """
    device = resolved(settings.device, sees_cuda=torch.cuda.is_available)
    if device == "cuda":
        check_devices(place, torch.cuda.device_count())
        torch.cuda.set_device(place.local_rank)
    store = connect(place)
    heartbeat = Heartbeat(store, place, stop=stop, ended=ended)
    heartbeat.start()
    try:
        with joined(place, store, device, settings.collective_timeout_s, heartbeat) as group:
            with group.watched():
                learner = learner_of(settings)
            group.limit(settings.collective_timeout_s)
            yield learner, group
            heartbeat.stop()
    except BaseException as error:
        heartbeat.fail(" ".join(f"{type(error).__name__}: {error}".split()))
        raise


def check_devices(place: RankPlace, count: int) -> None:
    """Raises SettingsInvalid where this machine has fewer than one CUDA device per rank."""
    here = place.local_rank + 1 if place.listener is None else place.size  # our launcher starts all on one machine
    if here > count:
        raise SettingsInvalid(f"{here} ranks are more than the {count} CUDA devices here; start with --ranks {count}")
