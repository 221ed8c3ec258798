"""Staleness token by token: what an older version sampled is context, the rest is trained."""

from msgspec.structs import replace

from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.view.planned_rows import rows_of
from claw_r1.schemas.events import CallCaptured, Event, VersionSpan
from tests import facts
from tests.trainer.pooled import RUN, VOCABULARY, group, pooled

GROUP = BatchSpec(algorithm="dr_grpo", groups_per_batch=1, group_size=2, staleness_max=1)
TOKENS = GROUP.model_copy(update={"stale": "tokens"})
VERSION = 20
"""The version that is trained: tokens of 19 and 20 are young."""


def played_over(versions: dict[str, list[tuple[int, int]]], ids: list[list[int]]) -> list[Event]:
    """A group of t0 and t1 with those calls. versions: call of t1 -> (version, tokens) of each of its spans."""

    def aged(event: Event) -> Event:
        if not isinstance(event, CallCaptured):
            return event
        length = len(event.response_ids) // 4
        spans = versions[event.call_id] if event.trajectory_id == "t1" else [(0, length)]
        made, start = [], 0
        for version, tokens in spans:
            made.append(VersionSpan(run_id=RUN, version=version, start=start, end=start + tokens))
            start += tokens
        return replace(event, spans=tuple(made))

    return [aged(event) for event in group("g", [0.0, 1.0], ids=ids)]


LONG = played_over({f"c{k}": [(k, 2)] for k in range(20)} | {"c19": [(18, 1), (19, 1)]}, [[5, 6]] * 20)
"""t0 played 20 calls at version 0; t1 one call at each version, its last one begun at version 18."""


def batch(history, spec=TOKENS, version=VERSION):
    """Why the group is left out, or its plan and rows."""
    world = pooled(history)
    selection = select(world.pool, spec, version, RUN, ())
    if not selection.complete:
        return {**selection.skipped, **selection.left_out}["g"]
    plan = assemble(selection.chosen, spec, run_id=RUN, sequence=0, version=version, seed=0, envelope=facts.envelope())
    rows = rows_of(plan, world.log.lookup(), VOCABULARY)
    return plan, rows


def test_an_episode_twenty_times_longer_than_the_rest_trains():
    """By its group it never does. By tokens: of its last reply the token that version 19 sampled; all else is context."""
    assert batch(LONG, GROUP) == "too_stale"
    plan, rows = batch(LONG)
    assert plan.oldest_version == 19
    assert {t.trajectory_id: [s.call_id for s in t.steps if s.trained] for t in plan.trajectories} == {
        "t0": [],
        "t1": ["c19"],
    }
    (row,) = rows
    assert [row.trained_tokens, list(row.mask)[-2:], list(row.versions)[-2:]] == [1, [0, 1], [-1, 19]]
    assert [row.logprobs[-2], row.logprobs[-1]] == [0.0, -3.0]
    assert row.responses == ((len(row) - 2, len(row)),)


def test_the_whole_group_counts_in_the_baseline():
    """Also members of which no token is young enough."""
    plan, _ = batch(LONG)
    assert [t.advantage for t in plan.trajectories] == [-0.5, 0.5]


def test_a_group_without_a_young_token_is_too_stale():
    """By one version; what a filter masks makes no group young."""
    assert batch(LONG, version=21) == "too_stale"
    curated = [*LONG, facts.curated("g", "t1", "c19", trainable=False)]
    assert batch(curated) == "too_stale"
    plan, rows = batch(curated, TOKENS.model_copy(update={"staleness_max": 3}))
    assert sum(row.trained_tokens for row in rows) == 4  # calls c17 and c18
    assert plan.oldest_version == 17


def test_young_groups_are_trained_as_ever():
    """Where nothing is stale the rows are those of `stale: group`, and no plan of that names a version."""
    young = group("g", [0.0, 1.0], version=5)
    plan, rows = batch(young, version=6)
    by_group, same_rows = batch(young, GROUP, version=6)
    assert rows == same_rows
    assert plan.trajectories == by_group.trajectories
    assert [plan.oldest_version, by_group.oldest_version] == [5, None]


def test_a_version_that_nobody_made_yet_is_refused():
    """Another history of the same run id."""
    assert batch(LONG, version=10).startswith("sampled_by_unknown_version")
