"""What Prometheus reads: each metric under its name, with the value of what really happened."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from claw_r1.eventlog.memory import MemoryLog, MemoryProducer
from claw_r1.eventlog.records import Position
from claw_r1.schemas.events import Event
from claw_r1.schemas.topics import Topic
from tests.facts import call
from tests.gateway.capture.test_durable_log import Place
from tests.gateway.engine import Reply, ScriptedEngine, completion, stream, written
from tests.gateway.house import ASK, House, ask, report
from tests.gateway.processes import poll
from tests.patience import PATIENCE_S

FAMILIES = {
    "claw_gateway_requests": "counter",
    "claw_gateway_request_seconds": "histogram",
    "claw_gateway_overhead_seconds": "histogram",
    "claw_gateway_first_token_seconds": "histogram",
    "claw_gateway_streams": "counter",
    "claw_gateway_capture_ack_seconds": "histogram",
    "claw_gateway_captured": "counter",
    "claw_gateway_incomplete": "counter",
    "claw_gateway_failed": "counter",
    "claw_gateway_unacknowledged": "counter",
    "claw_gateway_replayed": "counter",
    "claw_gateway_upstream_retries": "counter",
    "claw_gateway_admission": "counter",
    "claw_gateway_event_loop_lag_seconds": "gauge",
    "claw_gateway_in_flight": "gauge",
    "claw_gateway_held_bytes": "gauge",
    "claw_gateway_workers": "gauge",
    "claw_capture_lost": "counter",
    "claw_log_lines_dropped": "counter",
    "claw_spool_bytes": "gauge",
    "claw_spool_records": "gauge",
    "claw_spool_oldest_age_seconds": "gauge",
    "claw_spool_log_away": "gauge",
    "claw_spool_spooled": "counter",
    "claw_spool_drained": "counter",
    "claw_spool_refused": "counter",
    "claw_spool_fsyncs": "counter",
}
"""Dashboards and alarms are written against these: a name may be added, none goes or becomes another kind."""
ACK_S = 0.06


def sample(exposition: bytes, name: str, **labels: str) -> float:
    """One value. Fails when there is none of this name and these labels."""
    found = [
        one.value
        for family in text_string_to_metric_families(exposition.decode())
        for one in family.samples
        if (one.name, one.labels) == (name, labels)
    ]
    assert len(found) == 1, f"{name}{labels} is there {len(found)} times"
    return found[0]


async def metric(house: House, name: str, **labels: str) -> float:
    """One value, as Prometheus gets it."""
    async with aiohttp.ClientSession() as session, session.get(f"{house.url}/metrics") as reply:
        return sample(await reply.read(), name, **labels)


class SlowLog(MemoryLog):
    """A log that acknowledges after `ACK_S`."""

    def producer(self) -> MemoryProducer:
        return SlowProducer(self)


class SlowProducer(MemoryProducer):
    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position:
        await asyncio.sleep(ACK_S)
        return await super().publish(topic, key, event)


class HeldLog(MemoryLog):
    """A log that acknowledges when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def producer(self) -> MemoryProducer:
        return HeldProducer(self)


class HeldProducer(MemoryProducer):
    def __init__(self, log: HeldLog) -> None:
        super().__init__(log)
        self.held = log

    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position:
        self.held.asked.set()
        await poll(self.held.goes_on.is_set)
        return await super().publish(topic, key, event)


@asynccontextmanager
async def under_way(house: House, engine: ScriptedEngine, calls: int) -> AsyncIterator[None]:
    """So many calls, which the engine has and does not answer before the end of this."""
    seen, may_end = len(engine.requests), threading.Event()
    engine.then(*[Reply(completion(ASK).body, moment=may_end)] * calls)
    running = [asyncio.ensure_future(ask(house)) for _ in range(calls)]
    await poll(lambda: len(engine.requests) == seen + calls)
    try:
        yield
    finally:
        may_end.set()
    await asyncio.gather(*running)


def test_names_and_kinds_stay(tmp_path: Path) -> None:
    """The table of metrics is a promise to dashboards."""
    here = Place(tmp_path)
    exposed = {
        family.name: family.type for family in text_string_to_metric_families(here.metrics.exposition().decode())
    }
    here.store.close()
    assert exposed.items() >= FAMILIES.items()


async def test_calls_under_way(house: House, engine: ScriptedEngine) -> None:
    """in_flight is the number of calls that have no reply yet, and goes back to 0."""
    async with under_way(house, engine, 3):
        assert await metric(house, "claw_gateway_in_flight") == 3
    assert await metric(house, "claw_gateway_in_flight") == 0


async def test_a_blocked_loop_is_seen(house: House) -> None:
    """Whatever keeps the event loop from its work shows as lag, by about its length."""
    await poll(lambda: sample(house.metrics.exposition(), "claw_gateway_event_loop_lag_seconds") < 0.3)
    house.on_loop(lambda: time.sleep(0.8))
    # The watch looks four times a second: what it sees of a block is at least the rest after its next look was due.
    await poll(lambda: sample(house.metrics.exposition(), "claw_gateway_event_loop_lag_seconds") > 0.5)


async def test_a_source_that_hangs_holds_up_nobody(house: House) -> None:
    """As a disk does that does not say how full it is: the loop serves everybody else, and the exposition comes when it can."""
    reads, goes_on = threading.Event(), threading.Event()

    def hanging() -> float:
        reads.set()
        goes_on.wait()
        return 7

    house.metrics.observe(lambda: 0, hanging, lambda: 0)
    exposed = asyncio.ensure_future(metric(house, "claw_gateway_workers"))
    try:
        await poll(reads.is_set)
        patient = aiohttp.ClientTimeout(PATIENCE_S)
        async with aiohttp.ClientSession(timeout=patient) as session, session.get(f"{house.url}/livez") as reply:
            assert reply.status == 200
        assert not exposed.done()
    finally:
        goes_on.set()
    assert await exposed == 7


async def test_acknowledgements_are_timed(engine: ScriptedEngine) -> None:
    """One observation per call, as long as the log took."""
    with House(SlowLog()) as house:
        house.worker(engine.url)
        for _ in range(3):
            assert (await ask(house)).status == 200
        assert await metric(house, "claw_gateway_capture_ack_seconds_count") == 3
        waited_s = await metric(house, "claw_gateway_capture_ack_seconds_sum")
        assert 3 * ACK_S <= waited_s <= await metric(house, "claw_gateway_overhead_seconds_sum"), (
            "the log's time is ours"
        )
        assert await metric(house, "claw_gateway_captured_total", lane="named") == 3


async def test_what_is_missing_is_counted_by_name(house: House, engine: ScriptedEngine) -> None:
    """A call without ids counts once under each word that its event carries; a good one under none; nothing is lost."""
    engine.then(Reply(written({})[0]))
    assert (await ask(house)).status == (await ask(house)).status == 200
    assert house.captured[0].integrity.missing
    for missing in house.captured[0].integrity.missing:
        assert await metric(house, "claw_gateway_incomplete_total", missing=missing) == 1
    assert await metric(house, "claw_gateway_captured_total", lane="named") == 2
    assert await metric(house, "claw_capture_lost_total") == 0


async def test_first_tokens_are_timed(house: House, engine: ScriptedEngine) -> None:
    """From the request to the first text, not to the role before it and not to the end after it."""
    pace_s = 0.1
    asks = {**ASK, "stream": True}
    engine.then(stream({**asks, "logprobs": True, "return_token_ids": True}, pace_s=pace_s))
    assert (await ask(house, asks)).status == 200
    assert await metric(house, "claw_gateway_first_token_seconds_count") == 1
    first_s = await metric(house, "claw_gateway_first_token_seconds_sum")
    whole_s = await metric(house, "claw_gateway_request_seconds_sum")
    assert pace_s <= first_s <= whole_s - 2 * pace_s, "two more tokens come after the first one"
    assert await metric(house, "claw_gateway_streams_total", end="completed") == 1


async def test_refusals_and_failures_have_their_labels(house: House, engine: ScriptedEngine) -> None:
    """Each way to fail is counted under its status and its reason."""
    engine.then(Reply({"error": {"message": "too long"}}, status=400))
    assert (await ask(house)).status == 400
    assert (await ask(house, b"{")).status == 400
    engine.then(Reply(b"nonsense"))
    assert (await ask(house)).status == 502
    house.log.refusing = True
    assert (await ask(house)).status == 503
    house.log.refusing = False
    for status, times in (("400", 2), ("502", 1), ("503", 1)):
        assert await metric(house, "claw_gateway_requests_total", route="chat", status=status) == times
    assert await metric(house, "claw_gateway_failed_total", reason="refused") == 1
    assert await metric(house, "claw_gateway_unacknowledged_total") == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_who_left_before_the_acknowledgement_is_counted_as_gone(engine: ScriptedEngine, streamed: bool) -> None:
    """Such a call is captured, and its request has the status of a client that left: neither none nor a success."""
    log = HeldLog()
    body = json.dumps({**ASK, "stream": streamed}).encode()
    with House(log) as house:
        house.worker(engine.url)
        _, writer = await asyncio.open_connection(*house.url.removeprefix("http://").split(":"))
        head = b"POST /t/g/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        await poll(log.asked.is_set)
        writer.transport.abort()
        await poll(lambda: not house.connections)
        log.goes_on.set()
        await poll(lambda: b"requests_total{" in house.metrics.exposition())
        assert len(house.captured) == 1
        assert sample(house.metrics.exposition(), "claw_gateway_requests_total", route="chat", status="499") == 1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [500, 503])
async def test_time_in_engines_that_failed_is_no_overhead(
    house: House, engine: ScriptedEngine, streamed: bool, status: int
) -> None:
    """A call that was sent again spent the time of all its tries in engines."""
    engine.then(Reply(status=status, delay_s=0.5))
    reply = await ask(house, {**ASK, "stream": streamed})
    assert (reply.status, len(engine.requests)) == (200, 2)
    assert float(reply.headers["x-claw-overhead-ms"]) < 500


async def test_time_for_a_reply_that_makes_no_sense_is_no_overhead(house: House, engine: ScriptedEngine) -> None:
    """What an engine took to answer without choices was its time, not the gateway's."""
    engine.then(Reply({"choices": []}, delay_s=0.5))
    reply = await ask(house)
    assert reply.status == 502
    assert float(reply.headers["x-claw-overhead-ms"]) < 500


async def test_the_spool_is_seen_while_it_holds_something(tmp_path: Path) -> None:
    """Bytes, records and age while the log is away; 0 and a count of the drained once it is back; nothing is lost."""
    here = Place(tmp_path)
    try:
        here.log.refusing = True
        for number in range(3):
            await here.publish(call(call_id=f"c{number}"))
        seen = here.metrics.exposition()
        assert sample(seen, "claw_spool_bytes") > 3 * 100, "three records of some hundred bytes each"
        assert sample(seen, "claw_spool_records") == sample(seen, "claw_spool_spooled_total") == 3
        assert sample(seen, "claw_spool_log_away") == 1
        assert sample(seen, "claw_spool_fsyncs_total") >= 1
        assert 0 < sample(seen, "claw_spool_oldest_age_seconds") < 60
        here.log.refusing = False
        await poll(lambda: sample(here.metrics.exposition(), "claw_spool_bytes") == 0)
        seen = here.metrics.exposition()
        assert sample(seen, "claw_spool_records") == sample(seen, "claw_capture_lost_total") == 0
        assert sample(seen, "claw_spool_drained_total") == 3
    finally:
        here.store.close()


@pytest.mark.parametrize("how", ["refused by the engine", "bad JSON", "nonsense", "not acknowledged", "repeated"])
async def test_every_call_is_timed(house: House, engine: ScriptedEngine, how: str) -> None:
    """request_seconds holds calls that failed, too: a latency without them looks best when all is worst."""
    headers = {"idempotency_key": "k"} if how == "repeated" else {}
    body: object = ASK
    if how == "refused by the engine":
        engine.then(Reply({"error": {"message": "too long"}}, status=400))
    elif how == "bad JSON":
        body = b"{"
    elif how == "nonsense":
        engine.default = lambda _: Reply(b"nonsense")
    elif how == "not acknowledged":
        house.log.refusing = True
    elif how == "repeated":
        await ask(house, body, **headers)
    before = await metric(house, "claw_gateway_request_seconds_count")
    await ask(house, body, **headers)
    assert await metric(house, "claw_gateway_request_seconds_count") == before + 1


async def test_the_time_of_all_engines_only_grows() -> None:
    """Two workers add up; one that was started again, and what passed before the first report, take nothing away."""
    with House() as house:
        for worker_id, serving, idle in (
            ("a", 50, 50),
            ("b", 0, 10),
            ("a", 54, 56),
            ("b", 0, 12),
            ("a", 1, 2),
            ("a", 2, 2),
        ):
            seconds = {"serving": float(serving), "idle": float(idle)}
            house.engines.apply(report("http://127.0.0.1:1", worker_id, seconds=seconds))
        text = house.metrics.exposition()
        assert sample(text, "claw_gateway_engine_seconds_total", did="serving") == 5
        assert sample(text, "claw_gateway_engine_seconds_total", did="idle") == 8
