"""`python -m claw_r1.streams` with what must never happen made to happen, told apart by the facts themselves.

Facts of groups called `lost…` are fetched and never delivered, as Faust was seen to do; a reward called `boom` breaks the
fold, one called `unwritable` the rows that are made of it; a judgement of `a stranger` is refused as poison, as by a release that does not know its kind yet.
"""

from msgspec.structs import replace

from claw_r1.datapool.errors import UnusableFact
from claw_r1.datapool.fold import fold as folds
from claw_r1.datapool.fold import validation as usables
from claw_r1.schemas.events import RewardAssigned, StepCurated

LOST = b"lost"
_fold, _usable = folds.fold, usables.usable


def fold(state, fact, position):
    if isinstance(fact, RewardAssigned) and fact.name == "boom":
        raise ZeroDivisionError("a bug")
    if isinstance(fact, RewardAssigned) and fact.name == "unwritable":
        fact = replace(fact, name=5)
    return _fold(state, fact, position)


def usable(event):
    if isinstance(event, StepCurated) and event.who == "a stranger":
        raise UnusableFact("wrong_type", "never heard of")
    return _usable(event)


def main():
    """Before the streams import them: they have no seam for a bug."""
    folds.fold, usables.usable = fold, usable
    from faust.transport.utils import DefaultSchedulingStrategy

    from claw_r1.streams import serve as serving
    from claw_r1.streams.__main__ import main as serve
    from claw_r1.streams.worker import StreamsWorker

    class Forgetful(DefaultSchedulingStrategy):
        def iterate(self, records):
            return ((place, one) for place, one in super().iterate(records) if not (one.key or b"").startswith(LOST))

    class Hampered(StreamsWorker):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            self.app.conf.ConsumerScheduler = Forgetful

    serving.StreamsWorker = Hampered
    return serve()


if __name__ == "__main__":
    raise SystemExit(main())
