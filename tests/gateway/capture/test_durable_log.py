"""The store without processes: which way an event goes, and what happens when there is none."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from claw_r1.eventlog.errors import LogError, NotAcknowledged, RecordTooLarge, SpoolFull
from claw_r1.eventlog.memory import MemoryLog, MemoryProducer
from claw_r1.eventlog.records import Outgoing, Position
from claw_r1.eventlog.settings import LogSettings
from claw_r1.eventlog.spool.frames import frame
from claw_r1.eventlog.spool.spool import Spool
from claw_r1.gateway.capture.durable_log import DurableLog
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import CallCaptured, Event, TrajectoryCompleted
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS, Topic
from tests.facts import call, completed, failure, reward
from tests.patience import until

MIB = 1 << 20


class SlowToRefuse(MemoryProducer):
    """A producer that takes as long as a real one to say no, and can lose its answers."""

    wait_s = 0.2
    asked = 0
    deaf = False

    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position:
        self.asked += 1
        try:
            position = await super().publish(topic, key, event)
        except NotAcknowledged:
            await asyncio.sleep(self.wait_s)
            raise
        if self.deaf:
            raise NotAcknowledged("it arrived, but nobody heard")
        return position

    def produce(self, item: Outgoing) -> Future[Position]:
        time.sleep(0.01)
        return super().produce(item)


class Place:
    """A store on a log in memory and a spool on the disk."""

    def __init__(self, root: Path, *, draining: bool = True, **settings: object) -> None:
        self.log = MemoryLog(LogSettings(partitions=1))
        self.producer = SlowToRefuse(self.log)
        self.metrics = Metrics()
        chosen = GatewaySettings(**{"spool_dir": root, **settings})  # type: ignore[arg-type]  # fields by name, of any type
        self.spool = Spool(root, "test", bytes_max=chosen.spool_bytes_max)
        self.store = DurableLog(
            self.producer, self.spool, chosen, self.metrics, log_answers=lambda: not self.log.refusing
        )
        if draining:
            self.store.start()

    async def publish(self, event: Event, topic: Topic = CALLS) -> None:
        await self.store.publish(topic, group_key(event.group_id), event)  # type: ignore[union-attr]  # the kind that this test makes has it

    def events(self) -> list[Event]:
        return [record.event() for record in self.log.reader([CALLS]).read_to_end()]

    def drained(self) -> list[Event]:
        until(lambda: self.spool.empty)
        return self.events()


Open = Callable[..., Place]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Open]:
    """Opens a store, and closes it at the end."""
    opened: list[Place] = []

    def make(**settings: Any) -> Place:
        opened.append(Place(tmp_path / "spool", **settings))
        return opened[-1]

    yield make
    for one in opened:
        one.store.close()


async def test_a_log_that_answers_gets_everything(place: Open) -> None:
    """While the log acknowledges, nothing touches the spool."""
    here = place()
    for event in (call(), completed()):
        await here.publish(event)
    assert [type(event) for event in here.events()] == [CallCaptured, TrajectoryCompleted]
    assert here.spool.stats().spooled == 0
    assert here.store.not_ready() is None


@pytest.mark.parametrize("back", ["the log answers, and all who reported have ended", "reports come again"])
async def test_a_log_that_goes_away_unused_is_noticed(place: Open, back: str) -> None:
    """Nothing is published that could wait in vain: that nothing comes out of it makes the store ask, and only that."""
    here, quiet = place(draining=False), False
    here.store.start(lambda: quiet)
    here.log.refusing = True
    assert not here.store.unheard
    quiet = True
    until(lambda: here.store.unheard)
    assert not here.store.away
    here.log.refusing = back == "reports come again"
    quiet = not here.log.refusing
    until(lambda: not here.store.unheard)


async def test_a_silent_log_is_asked_once(place: Open) -> None:
    """The first event waits for the log in vain; the next ones are spooled at once; all arrive when it is back, with the
    names of those who asked."""
    here = place()
    here.log.refusing = True
    events = [
        call(call_id=f"c{number}", group=f"g{number}", envelope=envelope("gateway", key_name=f"key {number}"))
        for number in range(20)
    ]
    await here.publish(events[0])
    for event in events[1:]:
        await here.publish(event)
    assert here.producer.asked == 1
    assert here.store.not_ready() is None, "the spool takes events"
    assert "claw_spool_records 20.0" in here.metrics.exposition().decode()
    assert "claw_spool_log_away 1.0" in here.metrics.exposition().decode()
    here.log.refusing = False
    stored = here.drained()
    assert {event.envelope for event in stored} == {event.envelope for event in events}  # type: ignore[union-attr]  # the kind that this test makes has it
    assert "claw_spool_log_away 0.0" in here.metrics.exposition().decode()


async def test_a_completion_stays_behind_its_calls(place: Open) -> None:
    """Though the log is back, a fact whose group still has calls in the spool goes behind them; other groups do not."""
    here = place()
    here.log.refusing = True
    for number in range(30):
        await here.publish(call(call_id=f"c{number}", trajectory=f"t{number}"))
    here.log.refusing = False
    await here.publish(completed())
    stored = here.drained()
    assert isinstance(stored[-1], TrajectoryCompleted)
    assert len(stored) == 31


async def test_rewards_go_behind_too(place: Open) -> None:
    """A reward of a group in the spool is stored after its calls, on its own topic."""
    here = place()
    here.log.refusing = True
    await here.publish(call())
    await here.publish(reward(), REWARDS)
    assert here.spool.stats().records == 2
    here.log.refusing = False
    here.drained()
    assert len(list(here.log.reader([REWARDS]).read_to_end())) == 1


async def test_an_acknowledgement_that_is_lost_costs_a_copy(place: Open) -> None:
    """The original arrived unheard: the spooled copy carries the same event id."""
    here = place()
    here.producer.deaf = True
    await here.publish(call())
    stored = here.drained()
    assert len(stored) == 2
    assert len({event.envelope.event_id for event in stored}) == 1  # type: ignore[union-attr]  # the kind that this test makes has it


async def test_neither_takes_it(place: Open) -> None:
    """No log and no room: the publisher is told, the process is not ready, and is ready again when the log is."""
    here = place(spool_bytes_max=100)
    here.log.refusing = True
    with pytest.raises(LogError):
        await here.publish(call())
    assert here.store.not_ready() == "nothing_stores"
    here.log.refusing = False
    await asyncio.to_thread(until, lambda: here.store.not_ready() is None)
    await here.publish(call())
    assert len(here.events()) == 1


async def test_availability_is_for_calls_and_is_counted(place: Open) -> None:
    """By the operator's choice a captured call may be lost, counted; a completion never is."""
    here = place(spool_bytes_max=100, capture_on_failure="availability")
    here.log.refusing = True
    await here.publish(call())
    assert "claw_capture_lost_total 1.0" in here.metrics.exposition().decode()
    for event in (completed(), failure()):
        with pytest.raises(LogError):
            await here.publish(event)
    assert "claw_capture_lost_total 1.0" in here.metrics.exposition().decode()


async def test_a_full_spool_is_not_overtaken(place: Open) -> None:
    """A completion whose calls are in a full spool is refused, though the log would take it: order comes first."""
    first = call()
    size = len(frame(Outgoing.of(CALLS, b"g", first), behind=False))
    here = place(draining=False, spool_bytes_max=size + 10)
    here.log.refusing = True
    await here.publish(first)
    here.log.refusing = False
    with pytest.raises(SpoolFull):
        await here.publish(completed())
    await here.publish(completed("other"))
    here.store.start()
    await asyncio.to_thread(until, lambda: here.spool.empty)
    await here.publish(completed())
    assert [event.group_id for event in here.events()] == ["other", "g", "g"]  # type: ignore[union-attr]  # the kind that this test makes has it


async def test_too_large_is_told_either_way(place: Open) -> None:
    """A record over the limit is RecordTooLarge with and without a log, so that capture can leave the bodies out."""
    here = place()
    big = call(response_body=bytes(9 * MIB))
    with pytest.raises(RecordTooLarge):
        await here.publish(big)
    here.log.refusing = True
    await here.publish(call())
    with pytest.raises(RecordTooLarge):
        await here.publish(big)
    assert here.store.not_ready() is None


async def test_what_is_left_is_for_the_next_process(place: Open) -> None:
    """Closed while the log is away, the store leaves its records on the disk, and the next one brings them home."""
    first = place()
    first.log.refusing = True
    await first.publish(call())
    first.store.close()
    heir = place()
    assert len(heir.drained()) == 1
