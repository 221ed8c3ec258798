"""A curation counts before what its step has."""

import pytest

from claw_r1.consumers.pool.curation import CurationRequest, curations
from claw_r1.datapool.feedback import REVISION_MAX
from claw_r1.datapool.fold.curation import annotated
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import StepRecord
from tests import facts


@pytest.mark.parametrize("ahead_us", [-600_000_000, 600_000_000, None])
def test_a_curation_is_above_what_was_judged_before(ahead_us: int | None) -> None:
    """By the time, or by one where a judgement's clock was ahead; of the highest revision that there is, by the event's time."""
    before = REVISION_MAX if ahead_us is None else now_us() + ahead_us
    old = annotated(None, facts.curated(trainable=False, who="ann", revision=before))
    steps = [StepRecord(group_id="g", trajectory_id="t", call_id="c", curation=old)]
    steps.append(StepRecord(group_id="g", trajectory_id="t", call_id="fresh"))
    judgement, begin_us = CurationRequest(trainable=True), now_us()
    new, fresh = curations(steps, judgement, who="bob", producer="claw pool curate", act_id="a")
    curation = annotated(old, new)
    assert (curation.trainable, curation.who) == (True, "bob")
    assert begin_us <= fresh.revision <= now_us(), "of a step that nobody judged it is the time"
    assert new.revision == (fresh.revision if ahead_us and ahead_us < 0 else min(before + 1, REVISION_MAX))
