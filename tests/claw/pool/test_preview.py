"""What `claw pool batch` says, without a broker."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from claw_r1.claw.cli import REFUSALS, app
from claw_r1.claw.pool.preview import as_text
from claw_r1.consumers.pool.spec_fields import knobs
from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import PRESETS, BatchSpec
from claw_r1.datapool.fold import bounds
from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.preview import previewed
from claw_r1.datapool.view.why import Perspective
from claw_r1.schemas.events import BatchSkipped, CallCaptured, VersionSpan
from claw_r1.schemas.keys import step_key
from claw_r1.schemas.topics import STEPS
from claw_r1.trainer.plan.plan_metrics import plan_metrics
from tests import facts
from tests.datapool.view.test_planned_rows import BASES, with_other_prompt, written_against_c0
from tests.trainer.pooled import RUN, Pooled, group, pooled

POOLED = pooled(
    [
        *group("mixed", [0.0, 1.0, 1.0], at_us=1),
        *group("equal", [1.0, 1.0], at_us=2),
        *group("fresh", [0.0, 1.0], at_us=3),
        *group("short", [1.0], at_us=4, expected_size=2),
        *group("stale", [0.0, 1.0], at_us=5),
        *group("probe", [0.0, 1.0], at_us=6, channel="probe"),
        facts.curated("mixed", "t0", "c0", quality=0.2, who="scorer/a"),
        facts.curated("mixed", "t1", "c0", tags=("leak",)),
        facts.curated("mixed", "t1", "c1", tags=("leak",)),
        facts.curated("equal", "t0", "c0", trainable=False),
    ]
)
SPEC = {"group_size": 2, "groups_per_batch": 2, "quality_min": 0.5, "tags_exclude": ["leak"]}


def shown(made: Pooled = POOLED, **spec: object) -> dict[str, Any]:  # JSON
    runs = RunIndex()
    runs.apply(BatchSkipped(envelope=facts.envelope(), run_id=RUN, group_ids=("stale",), reason="too_stale"))
    asked = Perspective(run_id=RUN, version=1, spec=BatchSpec.model_validate({**SPEC, **spec}))
    return preview_of(made, asked, runs)


def preview_of(made: Pooled, asked: Perspective, runs: RunIndex | None = None) -> dict[str, Any]:  # JSON
    index = runs or RunIndex()
    return previewed(lambda look: look(made.pool, index), made.log.lookup(), asked).answer


def test_every_group_and_every_part_that_is_not_trained_has_its_reason() -> None:
    """Groups by kind, trajectories in the baseline, calls as context; what is counted adds up."""
    now = shown()
    assert now["chosen"] == ["mixed", "equal"]
    assert now["baseline_only"] == {"nothing_trainable": 1}
    assert now["masked"] == {"not_trainable": 1, "quality_low": 1}
    assert (now["trajectories"], now["trajectories_trained"], now["responses_trained"]) == (5, 4, 6)
    assert (now["return_mean"], now["zero_variance_groups"], now["staleness_max"]) == (0.8, 1, 1)
    assert now["reasons"] == {
        "waits": {"next_batch": 1, "not_ready: members_missing": 1},
        "foreign": {"other_channel: probe": 1},
        "settled": {"skipped: too_stale": 1},
    }
    assert set(now["left_out"]) == {"fresh", "short", "probe", "stale"}
    assert shown(zero_variance="drop")["reasons"]["never"] == {"zero_variance": 1}


def test_the_text_says_all_of_it() -> None:
    """For a person: sizes, savings, and reasons, if asked with the groups that they are about."""
    now = shown()
    text = as_text(now, verbose=True)
    alone = now["row_tokens"] + now["tokens_saved"]
    for said in (
        "2 of 2 groups, a whole batch",
        "4 of 5 trained; in the baseline only: 1 nothing_trainable",
        "masked: 1 not_trainable, 1 quality_low",
        f"shared prefixes save {now['tokens_saved']} of {alone}",
        "1  not_ready: members_missing  short",
        "1  other_channel: probe  probe",
        "1  skipped: too_stale  stale",
        "chosen: mixed, equal",
    ):
        assert said in text
    assert "1 more to wait for" in as_text(shown(zero_variance="drop", groups_per_batch=3))
    assert "a whole batch, full by response_tokens_max" in as_text(shown(response_tokens_max=12))


def test_a_batch_that_a_plan_has_no_more_room_for_is_not_said_to_be_full_by_tokens_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan holds 6 MiB, whatever the spec says of tokens."""
    monkeypatch.setattr(bounds, "PLAN_BYTES_MAX", 1500)
    now = shown()
    assert (now["complete"], now["groups"]) == (True, 1)
    assert "1 of 2 groups, a whole batch, full by response_tokens_max or by what a plan holds" in as_text(now)


def test_many_groups_of_one_reason_are_counted_and_named_only_if_asked() -> None:
    """Forty groups that wait are one line: a sum, and their ids with --verbose."""
    rows = pooled([fact for n in range(40) for fact in group(f"g{n:02}", [1.0], expected_size=2)])
    now = shown(rows)
    assert as_text(now).splitlines()[-1].split() == ["40", "not_ready:", "members_missing"]
    assert as_text(now, verbose=True).endswith(", ".join(f"g{n:02}" for n in range(40)))


def test_a_group_that_is_being_written_may_still_come() -> None:
    """Its rows are of different moments: nobody settled it."""
    rows = pooled(group("new", [0.0, 1.0]))
    rows.pool.apply(STEPS.name, step_key("new", "t0", "c0"), None)
    assert shown(rows)["reasons"] == {"waits": {"rows_changing": 1}}


def test_an_empty_pool_is_no_error() -> None:
    """Nothing is chosen, and nothing is divided by it."""
    assert as_text(shown(pooled([]))).endswith("0 of 2 groups, 2 more to wait for")


def typed(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["pool", *arguments])


def test_every_knob_and_preset_is_explained() -> None:
    """--explain needs no broker, and a field without words would be seen here."""
    assert {knob["name"] for knob in knobs()} == set(BatchSpec.model_fields)
    assert all(knob["does"] and knob["takes"] for knob in knobs())
    text = typed("batch", "--explain").stdout
    assert all(name in text for name in (*BatchSpec.model_fields, *PRESETS))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["batch", "--preset", "gropo"], "preset: 'gropo'; there are: grpo"),
        (["batch", "--preset", "grpo", "--spec", "x.yaml"], "--spec and --preset: name one"),
        (["batch", "--spec", "SPEC"], "spec.yaml: scores: 'entropy' is no name@version"),
        (["why", "x", "--preset", "gropo"], "preset: 'gropo'"),
        (["steps", "--score", "entropy>=0.3"], "score takes 'SCORER@VERSION>=NUMBER'"),
        (["steps", "--score", "entropy@1"], "in quotes, not 'entropy@1'"),
        (["curate", "c", "--set-score", "entropy@1"], "--set-score takes SCORER@VERSION=NUMBER"),
        (["curate", "c", "--set-score", "entropy=0.1", "--who", "ann"], "not 'entropy=0.1'"),
        (["groups", "--score", "entropy@1>=x"], "not 'entropy@1>=x'"),
        (["stats", "--score", "a@1>=0.4", "--score", "a@1<=0.3"], "a@1 is never >= 0.4 and <= 0.3"),
    ],
)
def test_a_mistake_is_told_before_the_broker_is_asked(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that names the option or the field; `main` makes it exit code 2 (test_cli.py)."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    spec = tmp_path / "spec.yaml"
    spec.write_text("scores: {entropy: {min: 0.3}}")
    done = typed(*[str(spec) if word == "SPEC" else word for word in arguments])
    assert isinstance(done.exception, REFUSALS)
    assert says in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_group_whose_prompts_cannot_be_put_together_is_never_trained() -> None:
    """As the trainer skips it: by the call's name, and another group takes its place."""
    edges = [written_against_c0(event, BASES) for event in group("g", [0.0, 1.0], at_us=1)]
    history = [*edges, *group("h", [0.0, 1.0], at_us=2)]
    rows = pooled(with_other_prompt(history, "g", "c1"))
    now = shown(rows, groups_per_batch=1, quality_min=None)
    assert (now["chosen"], now["complete"]) == (["h"], True)
    assert now["reasons"] == {"never": {"prompt_mismatch: c1": 1}}
    assert now["left_out"] == {"g": "prompt_mismatch: c1"}


def test_what_is_too_old_and_who_is_dropped_is_counted() -> None:
    """At version 2 c0 of each is too old, c1 is not; the third member's last reply was cut off."""
    events = [
        replace(
            event,
            spans=(replace(event.spans[0], version=1 if event.call_id == "c1" else 0),),
            finish_reason="length" if event.trajectory_id == "t2" else "stop",
        )
        if isinstance(event, CallCaptured)
        else event
        for event in group("g", [0.0, 1.0, 0.5])
    ]
    spec = BatchSpec(groups_per_batch=1, group_size=3, stale="tokens", truncated="drop")
    now = preview_of(pooled(events), Perspective(run_id=RUN, version=2, spec=spec))
    assert (now["complete"], now["dropped"], now["masked"]) == (True, {"truncated": 1}, {"too_old": 2})
    assert (now["trajectories"], now["responses_trained"], now["response_tokens"]) == (2, 2, 4)
    assert "not counted: 1 truncated" in as_text(now)


def test_a_slot_that_nobody_gives_is_warned_of_by_name() -> None:
    """Or a run waits for ever for a scorer that was misspelt."""
    now = shown(rewards_required=["judge/style"], reward_weights={"agent/completion": 1.0, "agent/complete": 2.0})
    assert now["warnings"] == [
        "reward_weights: nobody has given agent/complete yet (the pool's slots: agent/completion)",
        "rewards_required: nobody has given judge/style yet (the pool's slots: agent/completion)",
    ]
    assert as_text(now).splitlines()[1:3] == [f"warning: {warning}" for warning in now["warnings"]]
    assert now["reasons"]["waits"]["reward_required_for_3: judge/style"] == 1


def test_members_that_are_dropped_are_counted_by_reason() -> None:
    """The preview names who is not counted, whichever field drops them."""
    facts_of = [*group("g", [0.0, 1.0, 1.0]), *(facts.reward("g", f"t{n}", 1.0, source="judge") for n in range(2))]
    spec = BatchSpec(group_size=2, groups_per_batch=1, rewards_required=("judge/outcome",), reward_missing="reject")
    now = preview_of(pooled(facts_of), Perspective(run_id=RUN, version=1, spec=spec))
    assert now["dropped"] == {"reward_required: judge/outcome": 1}
    assert "not counted: 1 reward_required: judge/outcome" in as_text(now)


def test_an_environment_that_nobody_plays_is_warned_of_by_name() -> None:
    """Or a run waits for ever for its share of each batch; `claw train --dry-run` shows the same."""
    history = [*group("g", [0.0, 1.0], tags=("env:maths",)), *group("h", [0.0, 1.0], tags=("env:maths",))]
    spec = BatchSpec(groups_per_batch=2, group_size=2, environments={"maths": 0.5, "web": 0.5})
    now = preview_of(pooled(history), Perspective(run_id=RUN, version=0, spec=spec))
    assert (now["complete"], now["environments_missing"]) == (False, {"web": 1})
    assert now["warnings"] == ["environments: no group has the tag env:web yet (the pool's environments: maths)"]
    assert "warning: environments: no group has the tag env:web yet" in as_text(now)
    assert now["reasons"] == {"waits": {"environment_full: maths": 1}}


def of_versions(first: int, last: int, rewards: list[float | None]) -> Pooled:
    """A group whose replies begin with tokens of one version and end with those of another."""
    spans = tuple(VersionSpan(run_id=RUN, version=one, start=at, end=at + 1) for at, one in enumerate((first, last)))
    events = group("g", rewards, ids=((5, 6),))
    return pooled([replace(each, spans=spans) if isinstance(each, CallCaptured) else each for each in events])


@pytest.mark.parametrize(
    ("made", "fields", "stale"),
    [
        (of_versions(2, 9, [0.0, 1.0]), {"stale": "tokens"}, 1),
        (of_versions(20, 20, [1.0, None]), {"algorithm": "sft", "policy": "any"}, 0),
    ],
)
def test_the_figures_are_those_of_the_trainers_plan(made: Pooled, fields: dict[str, str], stale: int) -> None:
    """Tokens that are too old are not counted, versions of logged data mean nothing, and a member without a reward is
    worth 0."""
    spec = BatchSpec.model_validate({"groups_per_batch": 1, "group_size": 2, "staleness_max": 1, **fields})
    now = preview_of(made, Perspective(run_id=RUN, version=9, spec=spec))
    (chosen,) = select(made.pool, spec, 9, RUN, ()).chosen
    plan = assemble([chosen], spec, run_id=RUN, sequence=0, version=9, seed=0, envelope=facts.envelope())
    metrics = plan_metrics(plan)
    assert (now["return_mean"], now["staleness_max"]) == (metrics["reward"], metrics["staleness_max"]) == (0.5, stale)
    assert now["zero_variance_groups"] == metrics["zero_variance_share"]
