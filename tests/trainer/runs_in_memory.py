"""A run whose pool, facts and topics are one log in memory."""

import threading

from claw_r1.schemas.topics import BATCHES, WEIGHTS
from claw_r1.trainer.compose import learner_of
from claw_r1.trainer.dependencies import TrainerDependencies
from claw_r1.trainer.journal.journal import Journal
from tests.trainer.incarnation import RUN, FakeTransferServer
from tests.trainer.pooled import group, pooled

DEADLINE_S = 30


def memory_journal(log, run_id=RUN):
    return Journal(log.transactions(run_id), lambda: log.reader([BATCHES, WEIGHTS]).read_to_end(), run_id)


def events(log, kind):
    committed = (record.event() for record in log.reader([BATCHES, WEIGHTS]).read_to_end())
    return [event for event in committed if isinstance(event, kind)]


def world_of(chosen, history, reached=lambda _: None, stop=None, log=None):
    """Facts, pool and the run's topics on one memory log."""
    pooled_history = pooled(history)
    return (log or pooled_history.log), TrainerDependencies(
        learner=learner_of(chosen),
        pool=pooled_history.pool,
        facts=pooled_history.log.lookup(),
        journal=memory_journal(log or pooled_history.log, chosen.run_id),
        transfer_server=FakeTransferServer(),
        stop=stop or threading.Event(),
        producer="trainer/test",
        reached=reached,
    )


def two_batches(**changes):
    return [e for n in range(4) for e in group(f"g{n}", [0.0, 1.0, 1.0, 0.0], at_us=n, **changes)]


def cut(collaborators, *names):
    """Retention takes the calls of these groups, and what stands before them in their partitions."""
    ends = {}
    for name in names:
        for member in collaborators.pool.group(name).members:
            for step in collaborators.pool.steps(name, member.trajectory_id):
                place = step.position.topic, step.position.partition
                ends[place] = max(ends.get(place, 0), step.position.offset + 1)
    collaborators.facts._log.delete_records(ends)


def stopping_at(milestone, stop):
    return lambda reached: stop.set() if reached == milestone else None
