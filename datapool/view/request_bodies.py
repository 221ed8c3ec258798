"""Whole request bodies for a running reader of the calls, which the log has as edges (docs/deltas.md).

Invariant: the body of a call is a function of the log before it, not of this process's memory: bases not in
memory (of a trajectory older than this process, or one that was crowded out) are read from the log again, up to where the
trajectory was silent for `SILENCE_RECORDS_MAX` records: what lies before is lost, whether it is in memory or not.
Memory: calls' additions to their bases, up to `bytes_max`; the trajectory that was silent longest goes first.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from claw_r1.datapool.delta_decoding import BODY_UNIT, chain, resolve_all
from claw_r1.eventlog.records import Position, Record, readable
from claw_r1.schemas.events import CallCaptured, Edge, Event
from claw_r1.schemas.keys import group_key

BLOCK = 2_000
"""Records read at once on the way back; a base is rarely far behind."""
EDGE_BYTES = 500
"""The bytes that an edge takes in memory beside its suffix."""
SILENCE_RECORDS_MAX = 100_000
"""Records between two calls of a trajectory, before which it is not looked for: for a base that never came, the way
to the beginning of a long log takes longer than the work of one poll may."""
RecordsBefore = Callable[[Position], Iterator[Record]]
"""The records before a position in its partition, the latest first."""


def backwards(
    read: Callable[[int, int, int], Sequence[Record]], begin: int, at: Position, block: int = BLOCK
) -> Iterator[Record]:
    """The records with begin <= offset < at.offset, the latest first. read: (partition, start, end) to records in order."""
    end = at.offset
    while end > begin:
        start = max(begin, end - block)
        yield from reversed(read(at.partition, start, end))
        end = start


def within_reach(earlier: Iterator[Record], call: CallCaptured, at: Position) -> Iterator[Event]:
    """Events of the call's group among earlier records, which come latest first, up to a silence of its trajectory."""
    key, last = group_key(call.group_id), at.offset
    for record in earlier:
        if last - record.offset > SILENCE_RECORDS_MAX:
            return
        for event in readable([record] if record.key == key else ()):
            if isinstance(event, CallCaptured) and event.trajectory_id == call.trajectory_id:
                last = record.offset
            yield event


@dataclass(slots=True)
class TrajectoryBodies:
    """Edges of request bodies by call id."""

    last: int
    """Offset of the latest call that was added."""
    edges: dict[str, Edge] = field(default_factory=dict)
    bytes: int = 0
    searched: bool = False
    """The log was read back as far as it goes: a base that is not here now is lost."""

    def put(self, call: CallCaptured) -> int:
        """Keeps the call's edge, instead of that of an earlier attempt. Returns by how many bytes that is more."""
        before = self.bytes
        if (former := self.edges.get(call.call_id)) is not None:
            self.bytes -= EDGE_BYTES + len(former.suffix)
        self.edges[call.call_id] = call.request
        self.bytes += EDGE_BYTES + len(call.request.suffix)
        return self.bytes - before

    def lacks_base(self, call_id: str) -> bool:
        """Returns whether a base that the call's request goes on from, however far back, is not here."""
        base = self.edges[chain(self.edges, call_id)[-1]].base_call_id
        return base is not None and base not in self.edges


class RequestBodies:
    """`add` every call in the order of the log, then ask for its body. Belongs to one thread."""

    def __init__(self, earlier: RecordsBefore, bytes_max: int) -> None:
        self._earlier = earlier
        self._bytes_max = bytes_max
        self._bytes = 0
        self._trajectories: OrderedDict[tuple[str, str], TrajectoryBodies] = OrderedDict()

    def add(self, call: CallCaptured, at: Position) -> None:
        """One more call, or an earlier one again; the trajectory that was silent longest may make room for it."""
        place = (call.group_id, call.trajectory_id)
        trajectory = self._trajectories.setdefault(place, TrajectoryBodies(at.offset))
        if abs(at.offset - trajectory.last) > SILENCE_RECORDS_MAX:  # the way back ends there, too
            self._bytes -= trajectory.bytes
            trajectory = self._trajectories[place] = TrajectoryBodies(at.offset)
        trajectory.last = max(trajectory.last, at.offset)
        self._bytes += trajectory.put(call)
        self._trajectories.move_to_end(place)
        self._make_room()

    def body(self, call: CallCaptured, at: Position) -> bytes | None:
        """The request of the call that was added last, as its client sent it; None where a base of it is lost.

        at: the call's position. Raises LogError.
        """
        trajectory = self._trajectories[call.group_id, call.trajectory_id]
        if not trajectory.searched and trajectory.lacks_base(call.call_id):
            self._search(trajectory, call, at)
        links = {link: trajectory.edges[link] for link in chain(trajectory.edges, call.call_id)}
        return resolve_all(links, BODY_UNIT).get(call.call_id)

    def _search(self, trajectory: TrajectoryBodies, call: CallCaptured, at: Position) -> None:
        """Reads the log back to the call whose request is written in full."""
        for earlier in within_reach(self._earlier(at), call, at):
            if not isinstance(earlier, CallCaptured) or earlier.trajectory_id != call.trajectory_id:
                continue
            if earlier.call_id not in trajectory.edges:  # of several attempts the latest comes first
                self._bytes += trajectory.put(earlier)
            if not trajectory.lacks_base(call.call_id):
                break
        else:
            trajectory.searched = True
        self._make_room()

    def _make_room(self) -> None:
        """The trajectory at hand stays, however large it is."""
        while self._bytes > self._bytes_max and len(self._trajectories) > 1:
            self._bytes -= self._trajectories.popitem(last=False)[1].bytes
