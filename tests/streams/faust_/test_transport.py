"""How Faust's messages come to the queue."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS, FACTS
from claw_r1.streams.faust_.app import faust_app
from claw_r1.streams.faust_.transport import Consumer, SpacedFetches
from claw_r1.streams.settings import StreamsSettings
from tests.eventlog.samples import item
from tests.patience import until_async


async def delivering(suspended):
    """Tasks that ran a delivery and that asked for it, None for a delivery that did not come to its end."""
    consumer = faust_app(StreamsSettings(), LogSettings()).consumer
    assert isinstance(consumer, Consumer)
    flow, ran_in = consumer.app.flow_control, []
    flow.suspend() if suspended else flow.resume()

    async def delivery():
        if suspended:
            await asyncio.Event().wait()
        ran_in.append(asyncio.current_task())

    async def end_of_flow():
        await asyncio.sleep(0)

    async with asyncio.timeout(5):
        await consumer.wait_first(delivery(), end_of_flow())
    return ran_in, asyncio.current_task()


def test_a_delivery_that_cannot_wait_takes_no_task_of_its_own():
    """Four tasks per message were most of what Faust cost."""
    ran_in, asked = asyncio.run(delivering(suspended=False))
    assert ran_in == [asked]


def test_a_delivery_that_waits_ends_with_the_flow():
    """Else a rebalance would wait for a message that nobody may process."""
    ran_in, _ = asyncio.run(delivering(suspended=True))
    assert ran_in == []


class Assignment:
    """One partition, of which the last answer said where it ends."""

    def __init__(self, end):
        self.highwater = end

    def state_value(self, _partition):
        return self


REQUEST = SimpleNamespace(topics=[("claw.calls", [(0, 1000, 1 << 20)])])  # from offset 1000 on


async def a_task(spaced, node, end=1000):
    """A task that asks a broker, when it has gone as far as it can."""
    task = asyncio.create_task(spaced(Assignment(end), node, REQUEST))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_a_broker_that_answered_is_left_alone_for_a_while():
    """Facts that come meanwhile then come together; a second broker is asked at once, and so is one that has much to send."""
    asked = []

    async def fetch(_assignment, node, _request):
        asked.append(node)
        return True

    spaced = SpacedFetches(fetch, interval_s=1000)
    assert await (await a_task(spaced, 7)) is True
    waiting = await a_task(spaced, 7)
    assert await (await a_task(spaced, 8)) is True
    assert await (await a_task(spaced, 7, end=5000)) is True
    assert (asked, waiting.done()) == ([7, 8, 7], False)
    waiting.cancel()
    assert await waiting is False  # an error of a task would end aiokafka's loop for all brokers


def counting(log_settings, **settings):
    """An app, and how many facts of each key come to it."""
    app, seen = faust_app(StreamsSettings(**settings), log_settings), Counter()

    @app.agent(app.topic(*(log_settings.catalogue().name(topic) for topic in FACTS), value_serializer="raw"))
    async def count(stream):
        async for event in stream.noack().events():
            seen[event.message.key] += 1

    return app, seen


@pytest.mark.kafka
async def test_what_a_killed_copy_had_begun_is_no_fact(log_settings):
    """An aborted fact comes to no fold, and one behind it does: by another reading than that of lookups, a row would name the place of
    a fact that they do not find."""
    create_topics(log_settings)
    aborted = Producer({"bootstrap.servers": log_settings.bootstrap_servers, "transactional.id": log_settings.prefix})
    aborted.init_transactions()
    aborted.begin_transaction()
    aborted.produce(log_settings.catalogue().name(CALLS), b"half", b"aborted", partition=0)
    aborted.flush()
    aborted.abort_transaction()
    app, seen = counting(log_settings)
    await app.start()
    producer = EventProducer(log_settings)
    try:
        await producer.publish_all([item(key="whole", partition=0)])
        await until_async(lambda: seen, "the fact behind it")
    finally:
        producer.close()
        await app.stop()
    assert seen == {b"whole": 1}


@pytest.mark.kafka
async def test_a_worker_asks_less_often_than_facts_come(log_settings):
    """Each fact is acknowledged before the next is written: a client that asks at once fetches them one by one."""
    facts = 100
    app, seen = counting(log_settings, fetch_interval_s=1)
    await app.start()
    producer = EventProducer(log_settings)
    try:
        await until_async(app.consumer.assignment, "its partitions")
        spaced = app.consumer._thread._consumer._fetcher._proc_fetch_request
        fetch, fetches = spaced._fetch, []

        async def counted(*request):
            fetches.append(request)
            return await fetch(*request)

        spaced._fetch = counted
        for number in range(facts):
            await producer.publish_all([item(str(number))])
        await until_async(lambda: seen.total() == facts, "every fact")
    finally:
        producer.close()
        await app.stop()
    assert len(fetches) < facts / 2
