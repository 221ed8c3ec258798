"""From a call to what is trained: scores are facts like any other, and the batch spec says what they decide. No broker."""

import re
from pathlib import Path

from msgspec.structs import replace

from claw_r1.consumers.quality.sample import Sample
from claw_r1.consumers.quality.scorers import SCORERS, Scorer
from claw_r1.consumers.quality.scoring import annotation
from claw_r1.consumers.quality.settings import QualitySettings
from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec, of_text
from claw_r1.schemas.events import CallCaptured
from tests import facts
from tests.trainer.pooled import RUN, group, pooled

SPEC = BatchSpec(algorithm="dr_grpo", groups_per_batch=1, group_size=2)
PANEL = [SCORERS["length"], SCORERS["repetition"]]
PAGE = Path(__file__).parents[4] / "docs" / "batches.md"
CUT = ("t1", "c0")
"""Cut off at max_tokens: its length scores 0, the others' 1."""

HISTORY = [
    replace(fact, finish_reason="length")
    if isinstance(fact, CallCaptured) and (fact.trajectory_id, fact.call_id) == CUT
    else fact
    for fact in group("a", [0.0, 1.0])
]


def scores(panel=PANEL, generation=0):
    """What `claw quality` says of the history."""
    calls = [fact for fact in HISTORY if isinstance(fact, CallCaptured)]
    made = [annotation(panel, Sample(one, lambda: None), generation) for one in calls]
    return [event for event in made if event is not None]


def trained(*later, quality_min=0.5, **knobs):
    """(trajectory, call) of each response that the next batch trains."""
    spec = BatchSpec(**{**SPEC.model_dump(), "quality_min": quality_min, **knobs})
    selection = select(pooled([*HISTORY, *later]).pool, spec, 0, RUN, ())
    plan = assemble(selection.chosen, spec, run_id=RUN, sequence=0, version=0, seed=0, envelope=facts.envelope())
    return {(t.trajectory_id, s.call_id) for t in plan.trajectories for s in t.steps if s.trained}


ALL = trained()


def test_a_low_score_keeps_a_response_out_of_training():
    """Below the spec's bound it is masked; without scores, or without a bound, everything is trained."""
    assert len(ALL) == 4
    assert CUT in ALL
    assert trained(*scores()) == ALL - {CUT}
    assert trained(*scores(), quality_min=None) == ALL


def test_the_first_spec_of_the_page_trains_ordinary_replies_and_none_that_was_cut_off():
    """It waits for the default panel, and for no score that this never gives."""
    (text,) = re.findall(r"```yaml\n(preset: .*?)```", PAGE.read_text(), re.DOTALL)
    spec = of_text(text).model_dump() | {"groups_per_batch": 1, "group_size": 2}
    default = [SCORERS[name] for name in QualitySettings.model_fields["scorers"].default]
    assert trained(**spec) == set()
    assert trained(*scores(default), **spec) == ALL - {CUT}


def test_another_panel_takes_over_with_a_higher_generation():
    """The higher generation decides, in whatever order the scores come, and the lower one can come again."""
    kind = [Scorer("kind", 1, lambda _: 0.9)]
    for later in ([*scores(), *scores(kind, 1)], [*scores(kind, 1), *scores(), *scores()]):
        assert trained(*later) == ALL


def test_each_scorer_is_asked_by_its_own_name_whichever_panel_spoke_last():
    """Two panels beside each other: a bound on one holds whatever the other said, and whatever the quality is."""
    of_length, of_others = scores([SCORERS["length"]]), scores([SCORERS["repetition"], SCORERS["tool_calls"]])
    bound = {"quality_min": None, "scores": {"length@2": {"min": 0.5}, "tool_calls@2": {"min": 1.0}}}
    for told in ([*of_length, *of_others], [*of_others, *of_length]):
        assert trained(*told, **bound) == trained(*told, **bound, quality_missing="wait") == ALL - {CUT}
    assert trained(*of_length, **bound, quality_missing="wait") == set(), "tool_calls has not looked yet"


def test_a_person_has_the_last_word():
    """What somebody judged stands against every score, before and after it."""
    word = facts.curated("a", *CUT, quality=1.0, who="ann", revision=1_700_000_000_000_000)
    assert trained(word, *scores()) == trained(*scores(), word) == ALL
