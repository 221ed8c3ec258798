"""Several scorers as one annotation: a call is as good as its worst property. Pure."""

from collections.abc import Sequence

from consumers.quality.sample import Sample
from consumers.quality.scorers import Scorer
from consumers.quality.settings import REVISIONS
from schemas.envelopes import decision_id
from schemas.events import Envelope, StepCurated

PRODUCER = "quality"


def signature(panel: Sequence[Scorer]) -> str:
    """How a panel signs: `scorer/<name>@<version>`, several joined by `+`."""
    return "scorer/" + "+".join(sorted(scorer.label for scorer in panel))


def annotation(panel: Sequence[Scorer], sample: Sample, generation: int) -> StepCurated:
    """The lowest score, with each of them by name; null is the score of one that has nothing to say.

    The event is a function of the call and of the calls that its request continues: id, time and bytes are the same whenever
    it is made again. Of several captures of a call the completed one that was received last counts in the pool, and so does
    its score: completed ones have the higher revision, and the time of a score is that at which its call was received.
    """
    call = sample.call
    scores = {scorer.label: scorer.score(sample) for scorer in sorted(panel, key=lambda scorer: scorer.label)}
    numbers = [score for score in scores.values() if score is not None]
    subject = (
        "quality",
        call.group_id,
        call.trajectory_id,
        call.call_id,
        call.envelope.event_id,
        signature(panel),
        str(generation),
    )
    return StepCurated(
        envelope=Envelope(
            event_id=decision_id(*subject),
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
