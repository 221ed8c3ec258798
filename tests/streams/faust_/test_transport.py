"""How Faust's messages come to the queue."""

import asyncio

from claw_r1.eventlog.settings import LogSettings
from claw_r1.streams.faust_.app import faust_app
from claw_r1.streams.faust_.transport import Consumer
from claw_r1.streams.settings import StreamsSettings


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
