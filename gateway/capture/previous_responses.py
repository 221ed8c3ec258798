"""Earlier calls by the ids of their replies, for requests that go on from a reply instead of repeating the conversation.

Engines forget, and there are several: so the gateway finds the conversation among the calls of the request's own trajectory.
First in memory, which holds the latest replies of this process; then in the log, from its end backwards. Invariant: a
reply found was sent to this very trajectory, acknowledged, and completed; one not found within the bounds is unknown.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from claw_r1.datapool.delta_decoding import BODY_UNIT, chain, resolve_all
from claw_r1.eventlog.errors import HistoryCut, LogError
from claw_r1.eventlog.records import Record, readable
from claw_r1.gateway.call_protocol import CallRequest, ContinuedProtocol, EarlierCall, EngineReply
from claw_r1.gateway.capture.events import ModelCall
from claw_r1.gateway.errors import BodyTooLarge, Overloaded
from claw_r1.gateway.paths import Identity
from claw_r1.schemas.events import CallCaptured, Edge
from claw_r1.schemas.keys import group_key

MEMORY_BYTES_MAX = 64 << 20
SEARCH_RECORDS_MAX = 20_000
SEARCH_BYTES_MAX = 256 << 20
"""The most bytes of a partition that are read for one request."""
THREADS = 2
"""Searches at once; others wait their turn."""
SEARCHES_MAX = 16
"""Searches that are under way or wait."""
ReadCalls = Callable[[str], Iterator[Record]]
"""The records of calls in the partition of this group, the latest first. Raises LogError."""


class PreviousResponses:
    """The earlier calls that one process can find."""

    def __init__(self, read_calls: ReadCalls, conversation_bytes_max: int) -> None:
        """conversation_bytes_max: of all turns that one request goes on from."""
        self._read_calls, self._bytes, self._bytes_max = read_calls, 0, conversation_bytes_max
        self._searches = 0
        self._turns: OrderedDict[tuple[Identity, str], EarlierCall] = OrderedDict()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="earlier-calls")

    def remember(self, call: ModelCall, reply: EngineReply) -> None:
        """Keep an acknowledged call whose reply a later request may name."""
        protocol, last = call.protocol, reply.choices[-1]
        if not (call.request.stored and call.identity.named) or last.aborted:
            return
        assert isinstance(protocol, ContinuedProtocol)
        reply_id = protocol.reply_id(last.body)
        if reply_id is not None:
            self._forget((call.identity, reply_id))
            turn = self._turns[call.identity, reply_id] = EarlierCall(
                call.request.body, last.body, call.request.previous
            )
            self._bytes += _size(turn)
        while self._bytes > MEMORY_BYTES_MAX:
            self._forget(next(iter(self._turns)))

    async def continued(self, call: ModelCall) -> CallRequest:
        """The call's request with the conversation that it goes on from. Raises NotFound, BodyTooLarge, Overloaded."""
        protocol, previous = call.protocol, call.request.previous
        assert isinstance(protocol, ContinuedProtocol)
        turns: dict[str, EarlierCall] = {}
        while previous is not None and (turn := self._turns.get((call.identity, previous))) is not None:
            if previous in turns:  # a client may name its replies itself, and so close a circle
                return protocol.continued(call.request, None)
            self._turns.move_to_end((call.identity, previous))
            turns[previous] = turn
            previous = turn.previous
        latest_first = list(turns.values())
        if previous is not None:
            earlier = await self._search(protocol, call.identity, previous)
            if earlier is None:
                return protocol.continued(call.request, None)
            latest_first += earlier
        if sum(map(_size, latest_first)) > self._bytes_max:
            raise BodyTooLarge(f"with what it goes on from, the request is over {self._bytes_max} bytes")
        return protocol.continued(call.request, latest_first[::-1])

    async def _search(self, protocol: ContinuedProtocol, who: Identity, reply_id: str) -> list[EarlierCall] | None:
        """The turn of this reply and those before it, the latest first; None when one of them is not found."""
        if not who.named:
            return None
        if self._searches >= SEARCHES_MAX:
            raise Overloaded("too many requests look for earlier responses in the log", retry_after_s=1.0)
        loop = asyncio.get_running_loop()
        self._searches += 1
        try:
            return await loop.run_in_executor(self._threads, self._searched, protocol, who, reply_id)
        except HistoryCut:
            return None
        except LogError as unreadable:
            raise Overloaded(
                "the log cannot be read for the previous response; send it again",
                retry_after_s=1.0,
                code="log_unreadable",
            ) from unreadable
        finally:
            self._searches -= 1

    def _searched(self, protocol: ContinuedProtocol, who: Identity, reply_id: str) -> list[EarlierCall] | None:
        edges: dict[str, Edge] = {}
        replies: dict[str, CallCaptured] = {}
        turns: list[EarlierCall] = []
        for event in readable(self._records(who.group_id)):
            if not isinstance(event, CallCaptured) or event.trajectory_id != who.trajectory_id:
                continue
            edges.setdefault(event.call_id, event.request)  # of several attempts the latest comes first
            own_id = protocol.reply_id(event.response_body) if _may_be_named(event, protocol) else None
            if own_id is not None:
                replies.setdefault(own_id, event)
            while reply_id in replies and (body := _body(replies[reply_id].call_id, edges)) is not None:
                request = protocol.parse(body)
                if not request.stored:
                    return None
                turns.append(EarlierCall(body, replies[reply_id].response_body, request.previous))
                if request.previous is None:
                    return turns
                replies.pop(reply_id)  # so that a circle ends
                reply_id = request.previous
        return None

    def _records(self, group_id: str) -> Iterator[Record]:
        """Yields the records of this group, within the bounds."""
        key, left = group_key(group_id), SEARCH_BYTES_MAX
        for number, record in enumerate(self._read_calls(group_id)):
            left -= len(record.value or b"")
            if number >= SEARCH_RECORDS_MAX or left < 0:
                return
            if record.key == key:
                yield record

    def _forget(self, key: tuple[Identity, str]) -> None:
        turn = self._turns.pop(key, None)
        self._bytes -= _size(turn) if turn else 0


def _may_be_named(event: CallCaptured, protocol: ContinuedProtocol) -> bool:
    return event.protocol == protocol.name and event.status == "completed"


def _body(call_id: str, edges: dict[str, Edge]) -> bytes | None:
    """A call's request; None as long as a call is missing that it is written against."""
    return resolve_all({link: edges[link] for link in chain(edges, call_id)}, BODY_UNIT).get(call_id)


def _size(turn: EarlierCall) -> int:
    return len(turn.request) + len(turn.reply)
