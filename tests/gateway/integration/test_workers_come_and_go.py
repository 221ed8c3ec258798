"""Workers that drain or fall silent, through a running gateway: calls go where they are answered."""

import asyncio
import threading
import time

from tests.gateway.engine import Reply, ScriptedEngine, completion
from tests.gateway.house import ASK, House, ask, report
from tests.gateway.processes import poll

TRAJECTORIES = [f"/t{number}/g/v1/chat/completions" for number in range(12)]
"""Enough for affinity to send some to each of two workers."""


async def test_a_draining_worker_finishes_and_gets_nothing_new(engine: ScriptedEngine) -> None:
    """The call that a worker has when it begins to drain is answered by it; all later ones go elsewhere, unrefused."""
    with ScriptedEngine() as other, House() as house:
        house.worker(engine.url, "a")
        may_end = threading.Event()
        engine.then(Reply(completion(ASK).body, moment=may_end))
        last = asyncio.ensure_future(ask(house))
        await poll(lambda: len(engine.requests) == 1)
        house.worker(other.url, "b")
        house.worker(engine.url, "a", "draining")
        replies = [await ask(house, path=path) for path in TRAJECTORIES]
        assert not last.done()
        may_end.set()
        assert {reply.status for reply in replies} == {(await last).status} == {200}
        assert (len(engine.requests), len(other.requests)) == (1, len(TRAJECTORIES))
        workers = [event.worker_id for event in house.captured]
        assert (workers.count("a"), workers.count("b")) == (1, len(TRAJECTORIES))
        house.worker(engine.url, "a", "ready")
        for path in TRAJECTORIES:
            await ask(house, path=path)
        assert len(engine.requests) > 1, "a worker that is ready again is used again"


async def test_a_silent_worker_is_left_out(engine: ScriptedEngine) -> None:
    """A worker gets calls until its newest report is older than the ttl, and again when it reports."""
    with ScriptedEngine() as other, House(worker_ttl_s=2.0) as house:

        def reports(url: str, worker_id: str, *, age_s: float = 0.0) -> None:
            house.engines.apply(report(url, worker_id, timestamp_ms=int((time.time() - age_s) * 1000)))

        async def used() -> tuple[bool, bool]:
            before = len(engine.requests), len(other.requests)
            for path in TRAJECTORIES:
                assert (await ask(house, path=path)).status == 200
            return len(engine.requests) > before[0], len(other.requests) > before[1]

        reports(engine.url, "a")
        reports(other.url, "b", age_s=1.0)
        assert await used() == (True, True), "an old report within the ttl is good"
        await asyncio.sleep(1.1)
        reports(engine.url, "a")
        assert await used() == (True, False), "nobody told us that b is gone: it is silent"
        reports(other.url, "b")
        assert await used() == (True, True)


async def test_when_all_are_silent_a_call_waits_for_the_first_report(engine: ScriptedEngine) -> None:
    """A call that finds only silent workers is not sent to one of them, and is answered once one reports."""
    with House(worker_ttl_s=1.0, worker_wait_s=5.0) as house:
        house.engines.apply(report(engine.url, timestamp_ms=int((time.time() - 2) * 1000)))
        call = asyncio.ensure_future(ask(house))
        await asyncio.sleep(0.3)
        assert (call.done(), engine.requests) == (False, [])
        house.worker(engine.url)
        assert (await call).status == 200


async def test_a_worker_that_is_behind_samples_nothing_to_train_on(engine: ScriptedEngine) -> None:
    """Training calls go elsewhere, or wait and say why; others come only while no other worker is live; it comes back."""
    with ScriptedEngine() as other, House(worker_wait_s=0.2) as house:
        house.worker(engine.url, "a", "behind")
        refused = await ask(house)
        assert (refused.status, b"behind" in refused.body, engine.requests) == (503, True, [])
        assert (await ask(house, channel="val")).status == 200
        house.worker(other.url, "b")
        for path in TRAJECTORIES:
            assert (await ask(house, path=path)).status == (await ask(house, path=path, channel="val")).status == 200
        assert (len(engine.requests), len(other.requests)) == (1, 2 * len(TRAJECTORIES))
        house.worker(other.url, "b", "draining")
        call = asyncio.ensure_future(ask(house))
        house.worker(engine.url, "a", "ready")
        assert (await call).status == 200, "ready again, by its own report"


async def test_what_a_killed_worker_had_is_answered_by_another(engine: ScriptedEngine) -> None:
    """Calls in flight on a worker that breaks, also a stream before its first byte, are sent to the one that lives."""
    with ScriptedEngine() as other, House() as house:
        house.worker(engine.url, "a")
        killed = threading.Event()
        engine.then(*[Reply(reset=True, moment=killed)] * 2)
        calls = [asyncio.ensure_future(ask(house, {**ASK, "stream": stream})) for stream in (False, True)]
        await poll(lambda: len(engine.requests) == 2)
        house.worker(other.url, "b")
        killed.set()
        assert [(await call).status for call in calls] == [200, 200]
        assert [event.worker_id for event in house.captured] == ["b", "b"]
