"""The skin of the reactors: takes their decisions to the log.

Output: claw.calls, key group_id, plain facts (not transactional: Faust reads uncommitted), at least once. Until a
decision has come back through the log it would be taken again; that is harmless, and avoided for `RESEND_S`.
"""

import time
from collections.abc import Iterable

import structlog

from datapool.project import GroupImage
from eventlog.errors import NotAcknowledged
from eventlog.producer import EventProducer
from eventlog.records import Outgoing
from schemas.keys import group_key
from schemas.topics import CALLS
from streams.metrics import StreamsMetrics
from streams.reactors import Decision, decide

log = structlog.get_logger()

RESEND_S = 30.0


class Clock:
    """Acts for the groups it is shown; one instance per worker, so per partition exactly one is active."""

    def __init__(self, producer: EventProducer, idle_timeout_s: float, metrics: StreamsMetrics) -> None:
        self._producer = producer
        self._idle_timeout_us = int(idle_timeout_s * 1e6)
        self._metrics = metrics
        self._sent_at_s: dict[str, float] = {}

    async def act(self, groups: Iterable[GroupImage], now_us: int) -> int:
        """Write what is due; how many facts. A log that does not answer is asked again in the next round."""
        due = [one for one in decide(groups, now_us, self._idle_timeout_us) if self._is_new(one)]
        try:
            await self._producer.publish_all([Outgoing.of(CALLS, group_key(one.group_id), one) for one in due])
        except NotAcknowledged as error:
            log.warning("streams_decisions_not_acknowledged", decisions=len(due), error=str(error))
            return 0
        for one in due:
            self._note(one)
        return len(due)

    def _is_new(self, decision: Decision) -> bool:
        return time.monotonic() - self._sent_at_s.get(decision.envelope.event_id, -RESEND_S) >= RESEND_S

    def _note(self, decision: Decision) -> None:
        now_s = time.monotonic()
        self._sent_at_s = {key: at for key, at in self._sent_at_s.items() if now_s - at < RESEND_S}
        self._sent_at_s[decision.envelope.event_id] = now_s
        kind = type(decision).__name__
        self._metrics.decisions.labels(kind).inc()
        log.info("streams_decided", kind=kind, group_id=decision.group_id, reason=decision.reason)
