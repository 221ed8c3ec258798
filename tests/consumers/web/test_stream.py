"""The live stream: no gap, no repeat, nobody waited for."""

import asyncio
from typing import Any

from claw_r1.consumers.web.stream import BEHIND_MAX, LiveStream


def test_what_a_reader_missed_comes_once_and_what_is_too_old_is_read_again() -> None:
    """Ids of updates: none twice, none missing; another process's id is `again`."""

    async def scene() -> None:
        live = LiveStream()
        first = live.read(None)
        ready = await anext(first)
        assert b"event: ready" in ready
        for number in range(3):
            live.changed("group", f"g{number}")
            live.tell()
        updates = [await anext(first) for _ in range(3)]
        back = live.read(updates[0].split(b"\n")[0].removeprefix(b"id: ").decode())
        assert [await anext(back) for _ in range(2)] == updates[1:]
        assert b"event: ready" in await anext(back)
        stranger = live.read("00000000-1")
        assert b"event: again" in await anext(stranger)

    asyncio.run(scene())


def test_a_slow_reader_is_cut_off_and_not_waited_for() -> None:
    async def scene() -> None:
        live: Any = LiveStream()
        slow = live.read(None)
        await anext(slow)
        for number in range(BEHIND_MAX + 5):
            live.changed("group", str(number))
            live.tell()
        assert not live._readers
        rest = [each async for each in slow]
        assert len(rest) == BEHIND_MAX

    asyncio.run(scene())
