"""The work on one record: a captured call becomes one annotation. The loop around it is `claw_r1.eventlog.consume`.

A panel is several scorers that sign together: a call is as good as its worst property.
"""

from collections.abc import Collection, Sequence
from functools import partial

import structlog

from claw_r1.consumers.finite import finite
from claw_r1.consumers.quality.sample import Sample
from claw_r1.consumers.quality.scorers import Scorer
from claw_r1.consumers.quality.settings import REVISIONS, QualitySettings
from claw_r1.datapool.view.request_bodies import RecordsBefore, RequestBodies
from claw_r1.eventlog.consume import Output
from claw_r1.eventlog.records import Place, Record
from claw_r1.schemas.envelopes import decision_id
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import CallCaptured, Envelope, StepCurated
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import REWARDS

log = structlog.get_logger()

PRODUCER = "quality"


def signature(panel: Sequence[Scorer]) -> str:
    """Returns the signature of a panel: `scorer/<name>@<version>`, several joined by `+`."""
    return "scorer/" + "+".join(sorted(scorer.label for scorer in panel))


def annotation(panel: Sequence[Scorer], sample: Sample, generation: int) -> StepCurated:
    """The lowest score, with each of them by name; null is the score of one that has nothing to say, or gave no finite number.

    The event is a function of the call and of the calls that its request continues: id, time and bytes are the same whenever
    it is made again. Of several captures of a call the completed one that was received last counts in the pool, and so does
    its score: completed ones have the higher revision, and the time of a score is that at which its call was received.
    """
    call = sample.call
    scores = {scorer.label: _score(scorer, sample) for scorer in sorted(panel, key=lambda scorer: scorer.label)}
    numbers = [score for score in scores.values() if score is not None]
    ids = (call.group_id, call.trajectory_id, call.call_id, call.envelope.event_id)
    return StepCurated(
        envelope=Envelope(
            event_id=decision_id("quality", *ids, signature(panel), str(generation)),
            occurred_at_us=call.timings.received_us,
            producer=PRODUCER,
            run_id=call.envelope.run_id,
            causation_id=call.envelope.event_id,
        ),
        group_id=call.group_id,
        trajectory_id=call.trajectory_id,
        call_id=call.call_id,
        quality=min(numbers, default=None),
        scores=scores,
        who=signature(panel),
        revision=generation * REVISIONS + (call.status == "completed"),
    )


def _score(scorer: Scorer, sample: Sample) -> float | None:
    """A score that no event can carry, or that the streams would refuse with those of the whole panel, is none."""
    score = scorer.score(sample)
    try:
        return None if score is None else finite(score)
    except ValueError as error:
        log.warning("quality_no_number", scorer=scorer.label, call_id=sample.call.call_id, reason=str(error))
        return None


class Scoring:
    """Belongs to one thread."""

    def __init__(self, settings: QualitySettings, panel: Sequence[Scorer], *, earlier: RecordsBefore) -> None:
        """earlier: what the log holds before a position, for requests that go on from calls of before this start."""
        self._settings = settings
        self._panel = panel
        self._earlier = earlier
        self.forget()

    def work(self, record: Record) -> list[Output]:
        """Undecodable records are the streams' to report: here they are nothing to score. Raises LogError."""
        try:
            call = record.event() if record.value is not None else None
        except UndecodableRecord as error:
            log.warning("quality_undecodable", position=str(record.position), reason=error.reason)
            return []
        if not isinstance(call, CallCaptured):
            return []
        self._bodies.add(call, record.position)
        sample = Sample(call, partial(self._bodies.body, call, record.position))
        return [(REWARDS, group_key(call.group_id), annotation(self._panel, sample, self._settings.generation))]

    def forget(self, _: Collection[Place] = ()) -> None:
        """Another process may go on with a partition, and this one with its calls later: what is remembered has gaps then."""
        self._bodies = RequestBodies(self._earlier, self._settings.requests_bytes_max)
