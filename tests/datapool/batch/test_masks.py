"""Which responses are masked, and how that is told."""

import pytest

from claw_r1.datapool.batch.masks import STEP_FILTERS, step_filters
from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.why import Perspective, why
from tests import facts
from tests.trainer.pooled import RUN, group, pooled

PAIR = [*group("p", [0.0, 1.0]), *group("q", [0.0, 1.0])]
SCORED = facts.curated("p", "t0", "c0", quality=0.9, scores={"length@1": 0.9, "entropy@1": 0.2}, who="scorer/a")
SILENT = facts.curated("p", "t0", "c1", scores={"length@1": None, "entropy@1": None}, who="scorer/a")
JUDGED = [facts.curated("p", "t1", f"c{n}", quality=0.2, scores={"length@1": 0.2}, who="scorer/b") for n in range(2)]


def outcome(history, **spec):
    """Trained responses, and what is said of each group that is not chosen."""
    batch_spec = BatchSpec(group_size=2, staleness_max=3, **spec)
    selection = select(pooled(history).pool, batch_spec, 3, RUN, ())
    plan = assemble(selection.chosen, batch_spec, run_id=RUN, sequence=0, version=3, seed=0, envelope=facts.envelope())
    calls = [f"{t.group_id}/{t.trajectory_id}/{s.call_id}" for t in plan.trajectories for s in t.steps if s.trained]
    return calls, {**selection.left_out, **selection.skipped}


def test_what_nobody_judged_passes_is_rejected_or_waited_for():
    """A scorer that looked and had nothing to say has judged; low and missing are told apart; a wait ends with the words."""
    history = [*PAIR, SCORED, SILENT, *JUDGED]
    q = [f"q/t{t}/c{c}" for t in range(2) for c in range(2)]
    kept = ["p/t0/c0", "p/t0/c1"]
    assert outcome(history, quality_min=0.5) == ([*kept, *q], {})
    rejected = outcome(history, quality_min=0.5, quality_missing="reject")
    assert rejected == (kept, {"q": "nothing_trainable: quality_missing"})
    waiting = outcome(history, quality_min=0.5, quality_missing="wait")
    assert waiting == (kept, {"q": "quality_missing_for_4"})
    late = [facts.curated("q", f"t{t}", f"c{c}", quality=0.5) for t in range(2) for c in range(2)]
    assert outcome([*history, *late], quality_min=0.5, quality_missing="wait") == ([*kept, *q], {})


def test_a_bound_on_one_scorer_holds_whatever_the_others_said():
    """Lowest and highest, ends included; two scorers of two panels; what is missing is missing by name."""
    history = [*PAIR[: len(PAIR) // 2], SCORED, SILENT, *JUDGED]
    assert outcome(history, scores={"length@1": {"max": 0.2}})[0] == ["p/t0/c1", "p/t1/c0", "p/t1/c1"]
    assert outcome(history, scores={"length@1": {"min": 0.9}})[0] == ["p/t0/c0", "p/t0/c1"]
    both = {"length@1": {"min": 0.1}, "entropy@1": {"min": 0.2}}
    assert outcome(history, scores=both, quality_missing="reject")[0] == ["p/t0/c0", "p/t0/c1"]
    waiting = outcome(history, scores=both, quality_missing="wait")[1]
    assert waiting == {"p": "quality_missing_for_2: entropy@1"}
    high = {"length@1": {"min": 0.95}, "entropy@1": {"min": 0.3}}
    assert outcome(history, scores=high, quality_missing="wait") == (["p/t0/c1"], {}), (
        "too low already: nothing to wait for"
    )


@pytest.mark.parametrize(
    ("facts_", "names"),
    [
        ([facts.curated("p", "t0", "c1", tags=("x",))], ["p/t0/c1"]),
        ([facts.started("p", "t1", tags=("x",))], ["p/t1/c0", "p/t1/c1"]),
        (
            [
                facts.call("p", "t0", "c9", tags=("x",), received_us=9),
                facts.completed("p", "t0", calls=3, reward=0.0, envelope=facts.envelope(at_us=9)),
            ],
            ["p/t0/c9"],
        ),
    ],
)
def test_a_tag_counts_on_the_step_its_trajectory_or_its_group(facts_, names):
    """What is asked for or excluded may stand on any of them, as captured or by curation."""
    history = [*group("p", [0.0, 1.0]), *facts_]
    everything = outcome(history)[0]
    assert outcome(history, tags=["x"])[0] == names
    assert outcome(history, tags_exclude=["x"])[0] == [name for name in everything if name not in names] != []


def test_side_calls_are_left_out_unless_asked_for():
    """The step alone: its trajectory is trained, and what sub-agents did is, too."""
    side = facts.call("p", "t0", "title", tags=("kind:side",), received_us=9)
    other = facts.call("p", "t1", "c9", tags=("kind:subagent",), received_us=9)
    counted = [
        facts.completed("p", f"t{n}", calls=3, reward=float(n), envelope=facts.envelope(at_us=9)) for n in range(2)
    ]
    history = [*group("p", [0.0, 1.0]), side, other, *counted]
    trained = ["p/t0/c0", "p/t0/c1", "p/t1/c0", "p/t1/c1", "p/t1/c9"]
    assert outcome(history) == (trained, {})
    assert sorted(outcome(history, tags_exclude=())[0]) == sorted([*trained, "p/t0/title"])
    assert outcome(history, tags_exclude=["kind:side", "kind:subagent"])[0] == trained[:-1]


def test_a_group_says_which_tag_keeps_it_out():
    """Missing on every step, excluded as a whole, or excluded step by step."""
    assert outcome(PAIR, tags=["y"])[1] == dict.fromkeys("pq", "tags_missing: y")
    tagged = group("p", [0.0, 1.0], tags=("x",))
    assert outcome(tagged, tags_exclude=["x"])[1] == {"p": "tags_excluded: x"}
    assert len(outcome(tagged, tags=["x"])[0]) == 4
    one_by_one = [facts.curated("p", f"t{t}", f"c{c}", tags=("x",)) for t in range(2) for c in range(2)]
    assert outcome([*PAIR, *one_by_one], tags_exclude=["x"])[1] == {"p": "nothing_trainable: tags_excluded"}


def test_the_best_are_chosen_among_those_that_can_be_trained():
    """A trajectory whose every call is kept out does not take the place of the best; it counts in the baseline."""
    leak = facts.started("p", "t1", tags=("leak",))
    calls, others = outcome([*group("p", [0.5, 1.0]), leak], best_of=1, tags_exclude=["leak"], algorithm="sft")
    assert (calls, others) == (["p/t0/c0", "p/t0/c1"], {})


@pytest.mark.parametrize(
    ("spec", "name", "says"),
    [
        ({"quality_min": 0.5}, "c0", "quality 0.2 is below 0.5 (quality_low)"),
        ({"scores": {"length@1": {"max": 0.1}}}, "c0", "length@1 0.2 is above 0.1 (quality_high: length@1)"),
        ({"quality_min": 0.0, "quality_missing": "reject"}, "c1", "nobody judged its quality (quality_missing)"),
        ({"tags_exclude": ["leak"]}, "c1", "carries the tag leak (tags_excluded: leak)"),
        ({"best_of": 1}, "c1", "counts in the baseline and is not trained itself: not_among_best"),
        ({"return_min": 1.0}, "t0", "counts in the baseline and is not trained itself: return_low"),
        ({"scores": {"x@1": {"min": 0}}, "quality_missing": "wait"}, "p", "waits: quality_missing_for_4: x@1"),
        ({"quality_min": 0.0, "quality_missing": "wait"}, "c1", "its group waits: nobody judged its quality"),
    ],
)
def test_why_names_the_filter(spec, name, says):
    """The reason that keeps a call, a trajectory or a group out, with its numbers."""
    low = facts.curated("p", "t0", "c0", quality=0.2, scores={"length@1": 0.2})
    leak = facts.curated("p", "t0", "c1", tags=("leak",))
    rows = pooled([*group("p", [0.0, 1.0]), low, leak]).pool
    asked = Perspective(run_id=RUN, version=0, spec=BatchSpec(group_size=2, **spec))
    first = why(rows, RunIndex(), asked, name)[0]
    assert first.state == "left_out"
    assert says in first.lines[-1]


def test_a_step_filter_is_a_row_with_a_field_of_the_spec():
    """What filters steps is read from the table: the row's field exists, and counts as soon as it is set."""
    assert {row.field for row in STEP_FILTERS} <= set(BatchSpec.model_fields)
    assert step_filters(BatchSpec()) == {"tags_exclude": ("kind:side",)}
    assert step_filters(BatchSpec(tags_exclude=())) == {}
    assert step_filters(BatchSpec(tags=("x",), tags_exclude=(), return_min=0.5)) == {"tags": ("x",)}
