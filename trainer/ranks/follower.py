"""Every rank but the first: it performs what rank 0 sends, until rank 0 sends it away."""

import signal
import threading
from collections.abc import Iterator

import structlog

from trainer.errors import TrainerError
from trainer.learn.examples import LearnerBatch
from trainer.learn.learner import Learner
from trainer.ranks.channel import LEAVE, Channel
from trainer.ranks.member import member
from trainer.ranks.place import Place
from trainer.settings import TrainerSettings

VERBS = frozenset({"train", "named_tensors", "save", "load"})


def follow(settings: TrainerSettings, place: Place) -> None:
    """Until the run is over, or was stopped. Raises as `learner_of`, and RankLost."""
    structlog.contextvars.bind_contextvars(rank=place.rank)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Rank 0 hears of it by the heartbeat, and decides; see trainer/signals.py for why a thread.
        signal.signal(number, lambda *_: threading.Thread(target=stop.set, daemon=True).start())
    with member(settings, place, stop) as (learner, channel):
        verb = ""
        while verb != LEAVE:
            verb, arguments = channel.receive()
            try:
                with channel.performed():
                    _perform(learner, channel, verb, arguments)
            except TrainerError:
                pass  # rank 0 has it, too, and knows what to do


def _perform(learner: Learner, channel: Channel, verb: str, arguments: tuple[object, ...]) -> None:
    if verb == "train":
        (batch,) = arguments
        assert isinstance(batch, LearnerBatch)
        learner.train(batch, channel.follow)
    elif verb in VERBS:
        result = getattr(learner, verb)(*arguments)
        if callable(result):  # what is left to do of it: the files of a checkpoint
            result()
        if isinstance(result, Iterator):  # each step may be a collective
            for _ in result:
                pass
