"""Facts of the next batch are read while the one before it trains; nothing but the time of reading changes."""

import dataclasses
import threading

import pytest
from structlog.testing import capture_logs

from claw_r1.datapool.batch.plan import groups_of
from claw_r1.eventlog.errors import BrokerUnreachable, HistoryCut
from claw_r1.eventlog.records import Position
from claw_r1.schemas.events import BatchAssembled, BatchSkipped
from claw_r1.trainer.dependencies import Milestone
from claw_r1.trainer.plan import planner, prefetch
from claw_r1.trainer.plan.prefetch import FactsAhead
from claw_r1.trainer.run import TrainingRun
from tests.trainer.incarnation import settings
from tests.trainer.pooled import group
from tests.trainer.runs_in_memory import cut, events, two_batches, world_of

DEADLINE_S = 30


class Watched:
    """A `FactSource` that notes every look-up, and sets a flag for it."""

    def __init__(self, facts):
        self.facts, self.lookups, self.looked = facts, [], threading.Event()

    def get(self, positions):
        self.lookups.append(set(positions))
        self.looked.set()
        return self.facts.get(positions)


class Patient:
    """A learner that trains only once a look-up began after its batch was planned."""

    def __init__(self, learner, facts):
        self._learner, self._facts, self.waited = learner, facts, []

    def __getattr__(self, name):
        return getattr(self._learner, name)

    def train(self, batch, before_micro_batch):
        self.waited.append(self._facts.looked.wait(DEADLINE_S if not self.waited else 0))
        return self._learner.train(batch, before_micro_batch)


def planned(log):
    return [{Position.of(s.position) for t in p.trajectories for s in t.steps} for p in events(log, BatchAssembled)]


def test_the_next_batch_is_read_while_one_trains(tmp_path, model_dir):
    """Each fact once: those of the second batch before the first is trained, and none when its plan is put together."""
    chosen = settings(tmp_path, model_dir, batches_max=2)
    log, world = world_of(chosen, two_batches())
    facts = Watched(world.facts)
    learner = Patient(world.learner, facts)
    world = dataclasses.replace(
        world, facts=facts, learner=learner, reached=lambda m: facts.looked.clear() if m == "planned" else None
    )
    assert TrainingRun(chosen, world).run() == "finished"
    assert learner.waited[0]
    assert facts.lookups == planned(log)


def test_facts_that_were_cut_are_left_out_by_name_all_the_same(tmp_path, model_dir):
    """Reading ahead fails in silence; the reading that counts says why, and other groups fill the batch."""
    chosen = settings(tmp_path, model_dir, batches_max=2)
    history = [event for n in range(8) for event in group(f"g{n}", [0.0, 1.0, 1.0, 0.0], at_us=n)]
    log, world = world_of(chosen, history)

    def reached(milestone):
        if milestone == Milestone.PLANNED and len(events(log, BatchAssembled)) == 1:
            cut(world, "g2")

    assert TrainingRun(chosen, dataclasses.replace(world, reached=reached)).run() == "finished"
    skips = events(log, BatchSkipped)
    assert "g2" in {group_id for skip in skips for group_id in skip.group_ids}
    assert {skip.reason for skip in skips} == {"facts_cut"}
    assert all(len(groups_of(plan)) == 2 for plan in events(log, BatchAssembled))


class Away:
    """A `FactSource` whose broker does not answer the first so many look-ups."""

    def __init__(self, facts, failures):
        self._facts, self.failures = facts, failures

    def get(self, positions):
        if self.failures:
            self.failures -= 1
            raise BrokerUnreachable("no broker answers")
        return self._facts.get(positions)


def test_a_broker_that_is_away_for_a_while_is_waited_for(tmp_path, model_dir, monkeypatch):
    """No group is given up for it, no batch is another one; a person reads that it is away."""
    monkeypatch.setattr(planner, "PAUSE_S", 0.01)
    chosen = settings(tmp_path, model_dir, batches_max=2)
    log, world = world_of(chosen, two_batches())
    with capture_logs() as lines:
        assert TrainingRun(chosen, dataclasses.replace(world, facts=Away(world.facts, 3))).run() == "finished"
    assert sum(line["event"] == "facts_unreachable" for line in lines) == 3
    assert events(log, BatchSkipped) == []
    assert [groups_of(plan) for plan in events(log, BatchAssembled)] == [("g0", "g1"), ("g2", "g3")]


def test_a_broker_that_stays_away_ends_the_trainer(tmp_path, model_dir, monkeypatch):
    """With the log's own word, after as long as a transaction would wait; asked to stop, it stops at once."""
    monkeypatch.setattr(planner, "PAUSE_S", 0.01)
    monkeypatch.setattr(prefetch, "PATIENCE_S", 0.1)
    chosen = settings(tmp_path, model_dir, batches_max=2)
    _, world = world_of(chosen, two_batches())
    world = dataclasses.replace(world, facts=Away(world.facts, 10**9))
    with pytest.raises(BrokerUnreachable):
        TrainingRun(chosen, world).run()
    monkeypatch.setattr(prefetch, "PATIENCE_S", 60)
    _, again = world_of(chosen, two_batches())
    threading.Timer(0.5, again.stop.set).start()
    facts = Away(again.facts, 10**9)
    assert TrainingRun(chosen, dataclasses.replace(again, facts=facts)).run() == "stopped"


def test_what_was_not_read_ahead_is_read_when_it_is_needed():
    """All, some or none of it; a failure ahead is a failure only if it happens again."""
    places = [Position("t", 0, offset) for offset in range(4)]

    class Once:
        failures = 1

        def get(self, positions):
            if self.failures:
                self.failures -= 1
                raise HistoryCut("not now")
            return {position: f"record {position.offset}" for position in positions}

    facts = FactsAhead(Once(), lambda: None)
    facts.read(places[:2])
    assert facts.get(places[:3]) == {place: f"record {place.offset}" for place in places[:3]}
    facts.read(places[1:3])
    assert facts.get(places) == {place: f"record {place.offset}" for place in places}
    facts.read([])
    assert facts.get(places[:1]) == {places[0]: "record 0"}
    facts.close()
