"""The captured fact of one call, the line of its tokens, and the body that its client sent."""

from claw_r1.consumers.dashboard.source import DashboardSource
from claw_r1.consumers.web.problems import PageProblem
from claw_r1.datapool.delta_decoding import bodies
from claw_r1.datapool.view.token_lines import TokenLine, token_line
from claw_r1.eventlog.records import Position, readable
from claw_r1.schemas.events import CallCaptured, StepRecord, TrajectoryRecord

READ_ALONG = 64
"""Calls before one that are read with it, since its prompt is likely to be written against them."""
CHAIN_MAX = 200
"""Calls that a request may be written against, one after the other; the gateway begins anew after 64."""


def position_of(source: DashboardSource, trajectory: TrajectoryRecord, call_id: str) -> Position:
    """Returns the position of the capture that counts. Raises PageProblem."""
    place = source.positions(trajectory).get(call_id)
    if place is None:
        raise PageProblem(404, f"trajectory {trajectory.trajectory_id} has no captured call {call_id}")
    return place


def call_fact(source: DashboardSource, trajectory: TrajectoryRecord, call_id: str) -> CallCaptured:
    """The capture that counts. Raises PageProblem, LogError, HistoryCut."""
    place = position_of(source, trajectory, call_id)
    fact = next(readable(source.records([place]).values()), None)
    if not isinstance(fact, CallCaptured):
        raise PageProblem(
            422, f"the record at {place.topic}[{place.partition}]@{place.offset} is no call that can be read here"
        )
    return fact


class TokenLines:
    """The token lines of a trajectory's calls; each capture is read once."""

    def __init__(self, source: DashboardSource, trajectory: TrajectoryRecord) -> None:
        self._source, self._trajectory = source, trajectory
        self._read: dict[str, CallCaptured | None] = {}

    def of(self, call_id: str) -> TokenLine | None:
        """Returns the line of `call_id`, None where its tokens cannot be read. Raises LogError, HistoryCut."""
        return token_line(call_id, self._trajectory.calls, self._capture, self._row)

    def _capture(self, name: str) -> CallCaptured | None:
        if name not in self._read:
            calls = self._trajectory.calls
            behind = calls.index(name) + 1 if name in calls else 0
            names = set(calls[max(0, behind - READ_ALONG) : behind]) - self._read.keys()
            self._read.update({name: None, **self._source.calls(self._trajectory, names)})
        return self._read[name]

    def _row(self, name: str) -> StepRecord | None:
        ids = self._trajectory.group_id, self._trajectory.trajectory_id, name
        return self._source.pool.ask(lambda rows: rows.step(*ids))


def request_body(source: DashboardSource, trajectory: TrajectoryRecord, call: CallCaptured) -> bytes | None:
    """Returns the body that the client sent; None where its base is gone. Raises as `call_fact`."""
    calls = {call.call_id: call}
    base = call.request.base_call_id
    while base is not None and base not in calls and base in trajectory.calls and len(calls) < CHAIN_MAX:
        calls[base] = call_fact(source, trajectory, base)
        base = calls[base].request.base_call_id
    return bodies(calls).get(call.call_id)
