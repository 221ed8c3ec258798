"""The loop in one process, with the real engine, on a memory log."""

import dataclasses
import json
import threading
import time

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from claw_r1.datapool.batch.plan import assemble, groups_of
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import PRESETS
from claw_r1.datapool.view.planned_rows import rows_of
from claw_r1.datapool.view.view import TOPICS, PoolView
from claw_r1.eventlog.errors import Fenced, LogError
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchSkipped,
    BatchTrained,
    CallCaptured,
    RunEnded,
    RunStarted,
    WeightsPublished,
)
from claw_r1.schemas.topics import BATCHES, WEIGHTS
from claw_r1.trainer.dependencies import Milestone, TrainerDependencies
from claw_r1.trainer.errors import BatchLost, CheckpointInvalid, SettingsInvalid
from claw_r1.trainer.plan.learner_batch import examples_of
from claw_r1.trainer.run import TrainingRun
from tests import facts
from tests.datapool.view.test_planned_rows import BASES, written_against_c0
from tests.patience import until
from tests.trainer.incarnation import RUN, SPEC, settings
from tests.trainer.pooled import SETTINGS, VOCABULARY, group, write_pool
from tests.trainer.runs_in_memory import DEADLINE_S, cut, events, memory_journal, stopping_at, two_batches, world_of
from tests.trainer.tiny import make_model


def test_a_run_trains_until_batches_max(tmp_path, model_dir):
    """Two batches, three versions, an end; every version was staged before its event."""
    chosen = settings(tmp_path, model_dir, batches_max=2)
    log, collaborators = world_of(chosen, two_batches())
    run = TrainingRun(chosen, collaborators)
    assert run.run() == "finished"
    assert run.version == 2
    assert [e.version for e in events(log, BatchTrained)] == [1, 2]
    staged = dict(collaborators.transfer_server.staged)
    assert {e.version: e.digest for e in events(log, WeightsPublished)} == staged
    (ended,) = events(log, RunEnded)
    assert (ended.status, ended.reason, ended.batches, ended.version) == ("finished", "batches_max", 2, 2)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_is_trained_to_a_version(tmp_path, model_dir, preset):
    """From pool to published weights; per-step advantages and the loss of SFT arrive in the engine."""
    spec = {"preset": preset, "groups_per_batch": 2, "group_size": 2, "staleness_max": 9}
    chosen = settings(tmp_path, model_dir, batches_max=1, spec=spec)
    log, collaborators = world_of(
        chosen, [*two_batches(), facts.reward("g0", "t1", -2.0, call_id="c1", source="judge")]
    )
    assert TrainingRun(chosen, collaborators).run() == "finished"
    (trained,) = events(log, BatchTrained)
    responses = 2 if preset == "sft_best" else 8
    assert trained.metrics["trained_tokens"] == responses * 5
    assert trained.metrics["grad_norm"] > 0 or preset == "gae"  # whose advantages come from a critic
    if preset == "sft_best":
        assert trained.metrics["loss"] > 0
        assert trained.metrics["clip_share"] == 0


def test_dr_grpo_divides_by_a_constant_and_nobody_else(tmp_path, model_dir):
    """Twice the constant, half the gradient; under the mean over tokens it means nothing."""

    def norm(algorithm, loss_length):
        spec = {"algorithm": algorithm, "groups_per_batch": 2, "group_size": 2, "staleness_max": 9}
        out = tmp_path / f"{algorithm}-{loss_length}"
        chosen = settings(out, model_dir, batches_max=1, spec=spec, loss_length=loss_length, grad_clip=1e9)
        log, collaborators = world_of(chosen, two_batches())
        assert TrainingRun(chosen, collaborators).run() == "finished"
        return events(log, BatchTrained)[0].metrics["grad_norm"]

    assert norm("dr_grpo", 20) == pytest.approx(norm("dr_grpo", 10) / 2, rel=1e-4)
    assert norm("rloo", 20) == pytest.approx(norm("rloo", 10), rel=1e-4)


def test_several_optimizer_steps_make_one_version(tmp_path, model_dir):
    """Two parts, two epochs: four steps, and one version with one plan."""
    steps = {"minibatches": 2, "epochs": 2, "correction": "decoupled"}
    chosen = settings(tmp_path, model_dir, batches_max=1, objective=steps, optimizer={"warmup_steps": 8})
    log, collaborators = world_of(chosen, two_batches())
    assert TrainingRun(chosen, collaborators).run() == "finished"
    (trained,) = events(log, BatchTrained)
    assert (trained.version, trained.metrics["optimizer_steps"]) == (1, 4)
    assert trained.metrics["learning_rate"] == pytest.approx(chosen.learning_rate * 4 / 8)
    assert trained.metrics["correction_mean"] > 0


def test_environments_keep_their_shares_over_a_restart(tmp_path, model_dir):
    """Three quarters and one, two groups a batch: the odd batches have one of each; a trainer that is started anew goes on there, and
    every batch has the curves of both."""
    shares = {"environments": {"maths": 0.75, "web": 0.25}, "staleness_max": 100}
    spec = {**SPEC.model_dump(), **shares, "groups_per_batch": 2, "group_size": 2}
    history = [
        event
        for number, name in enumerate(["maths"] * 9 + ["web"] * 9)
        for event in group(f"{name}-{number}", [0.0, 1.0], at_us=number, tags=(f"env:{name}",))
    ]
    log = MemoryLog(SETTINGS)
    for batches_max in (1, 4):
        chosen = settings(tmp_path, model_dir, batches_max=batches_max, spec=spec)
        _, collaborators = world_of(chosen, history, log=log)
        assert TrainingRun(chosen, collaborators).run() == "finished"
    plans = sorted(events(log, BatchAssembled), key=lambda plan: plan.sequence)
    of_plans = [sorted(name.split("-")[0] for name in groups_of(plan)) for plan in plans]
    assert of_plans == [["maths", "maths"], ["maths", "web"]] * 2
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["env.maths.share"] for line in lines] == [1.0, 0.5, 1.0, 0.5]
    assert lines[1]["env.web.reward"] == 0.5


def test_advantages_of_steps_reach_their_tokens(tmp_path, model_dir):
    """Step-level GRPO: the calls of one trajectory share a row and are pushed differently."""
    spec = {"preset": "step_grpo", "groups_per_batch": 1, "group_size": 2}
    chosen = settings(tmp_path, model_dir, batches_max=1, spec=spec)
    history = [*group("g", [0.0, 0.0]), facts.reward("g", "t0", 1.0, call_id="c0", source="judge")]
    log, collaborators = world_of(chosen, history)
    assert TrainingRun(chosen, collaborators).run() == "finished"
    (plan,) = events(log, BatchAssembled)
    first, second = rows_of(plan, collaborators.facts, collaborators.learner.vocabulary)
    pushed = [
        sorted({round(a, 3) for a, m in zip(row.advantages, row.mask, strict=True) if m}) for row in (first, second)
    ]
    assert pushed == [[0.0, 0.707], [-0.707, 0.0]]
    example, _ = examples_of([first, second], plan)
    assert example.advantages.tolist() == [first.advantages[at] for at in example.at]


def test_one_batch_reinforces_some_responses_and_imitates_others(tmp_path, model_dir):
    """The tag's weights reach the tokens of its responses; returns are equal, so only what is imitated has a gradient."""

    def trained(name, mix):
        spec = {"preset": "grpo", "groups_per_batch": 1, "group_size": 2, "mix": mix}
        chosen = settings(tmp_path / name, model_dir, batches_max=1, spec=spec)
        history = [*group("g", [1.0, 1.0]), facts.curated("g", "t0", "c1", tags=("expert",))]
        log, collaborators = world_of(chosen, history)
        assert TrainingRun(chosen, collaborators).run() == "finished"
        (plan,) = events(log, BatchAssembled)
        examples = examples_of(rows_of(plan, collaborators.facts, collaborators.learner.vocabulary), plan)
        return events(log, BatchTrained)[0].metrics, [example.weights.tolist() for example in examples]

    metrics, weights = trained("mixed", {"expert": [0.0, 1.0, 0.0]})
    assert weights == [[[1.0, 0.0, 1.0]] * 3 + [[0.0, 1.0, 0.0]] * 2, [[1.0, 0.0, 1.0]] * 5]
    assert metrics["grad_norm"] > 0
    assert trained("alone", {})[0]["grad_norm"] == 0


def test_logged_data_of_another_run_is_imitated(tmp_path, model_dir):
    """Without a ratio nothing is asked of who sampled it: another run's greedy replies, at a version that nobody knows here."""
    greedy = [
        replace(event, sampling=replace(event.sampling, temperature=0.0)) if isinstance(event, CallCaptured) else event
        for event in group("g", [None, None], run="other", version=77)
    ]
    chosen = settings(
        tmp_path, model_dir, batches_max=1, spec={"preset": "sft_logged", "groups_per_batch": 1, "group_size": 2}
    )
    log, collaborators = world_of(chosen, greedy)
    assert TrainingRun(chosen, collaborators).run() == "finished"
    (trained,) = events(log, BatchTrained)
    assert (trained.metrics["trained_tokens"], trained.metrics["staleness_max"]) == (10, 0)
    assert trained.metrics["grad_norm"] > 0


def test_learning_rate_0_publishes_versions_of_equal_bytes(tmp_path, model_dir):
    """The control: versions count up, weights do not change."""
    chosen = settings(tmp_path, model_dir, batches_max=2, learning_rate=0.0)
    log, collaborators = world_of(chosen, two_batches())
    TrainingRun(chosen, collaborators).run()
    assert [e.version for e in events(log, BatchTrained)] == [1, 2]
    assert len({e.digest for e in events(log, WeightsPublished)}) == 1


def test_a_second_trainer_of_the_run_stops_the_first(tmp_path, model_dir):
    """The first can commit nothing more once the second took over; the second goes on where the log is."""
    first = settings(tmp_path / "a", model_dir, batches_max=2)
    log, old = world_of(first, two_batches())
    taken_over, ended = threading.Event(), []

    def wait_to_be_replaced(milestone):
        if milestone == Milestone.TRAINED and not taken_over.is_set():
            replace_it()

    def replace_it():
        taken_over.set()
        second = settings(tmp_path / "b", model_dir, batches_max=2)
        _, new = world_of(second, two_batches(), log=log)
        ended.append(TrainingRun(second, new).run())

    old = TrainerDependencies(**{name: getattr(old, name) for name in old.__slots__} | {"reached": wait_to_be_replaced})
    with pytest.raises(Fenced):
        TrainingRun(first, old).run()
    assert ended == ["finished"]
    assert [e.sequence for e in events(log, BatchTrained)] == [0, 1]
    assert [e.sequence for e in events(log, BatchAssembled)] == [0, 1]
    assert [e.incarnation for e in events(log, RunStarted)] == [1, 2]


def test_stopping_while_it_waits_leaves_a_run_that_can_go_on(tmp_path, model_dir):
    """Asked to stop without data: at once, and without RunEnded."""
    stop = threading.Event()
    chosen = settings(tmp_path, model_dir, wait_log_interval_s=0.05)
    log, collaborators = world_of(chosen, group("a", [0.0, 1.0, None, 1.0]), stop=stop)
    endings = []
    with capture_logs() as logs:
        thread = threading.Thread(target=lambda: endings.append(TrainingRun(chosen, collaborators).run()))
        thread.start()
        until(lambda: any(line["event"] == "waiting_for_groups" for line in logs))
        stop.set()
        thread.join(DEADLINE_S)
    assert endings == ["stopped"]
    assert events(log, RunEnded) == []
    (line, *_) = [line for line in logs if line["event"] == "waiting_for_groups"]
    assert line["left_out"] == {"reward_missing_for_1": 1}
    assert (line["ready"], line["needed"]) == (0, SPEC.groups_per_batch)


def test_stopping_in_the_middle_of_a_batch_abandons_it_safely(tmp_path, model_dir):
    """The plan stays; the next incarnation trains it, once."""
    stop = threading.Event()
    chosen = settings(tmp_path, model_dir, batches_max=2)
    log, collaborators = world_of(chosen, two_batches(), lambda m: stop.set() if m == Milestone.PLANNED else None, stop)
    assert TrainingRun(chosen, collaborators).run() == "stopped"
    assert (len(events(log, BatchAssembled)), len(events(log, BatchTrained))) == (1, 0)
    _, again = world_of(chosen, two_batches(), log=log)
    assert TrainingRun(chosen, again).run() == "finished"
    assert [e.sequence for e in events(log, BatchTrained)] == [0, 1]


def test_groups_that_will_never_be_trained_are_said_so_once(tmp_path, model_dir):
    """Too stale or solved: one BatchSkipped per reason, so that their capacity returns; none is trained."""
    spec = SPEC.model_copy(update={"staleness_max": 0, "reward_mean_max": 0.9})
    chosen = settings(tmp_path, model_dir, spec=spec, batches_max=1)
    # v0 groups: two for the first batch, one solved.
    history = [*group("solved", [1.0] * 4, at_us=0), *two_batches()[: len(two_batches()) // 2]]
    log, collaborators = world_of(chosen, history)
    TrainingRun(chosen, collaborators).run()
    assert [(e.reason, e.group_ids) for e in events(log, BatchSkipped)] == [("reward_mean_high", ("solved",))]
    later = settings(tmp_path / "later", model_dir, run_id=RUN, spec=spec, batches_max=2)
    stop = threading.Event()
    log, collaborators = world_of(later, two_batches(), stop=stop)
    thread = threading.Thread(target=TrainingRun(later, collaborators).run)
    thread.start()
    until(lambda: events(log, BatchSkipped))
    stop.set()
    thread.join(DEADLINE_S)
    assert [(e.reason, e.group_ids) for e in events(log, BatchSkipped)] == [("too_stale", ("g2", "g3"))]


def test_training_stops_at_the_reward_that_was_asked_for(tmp_path, model_dir):
    """After batches_min, the mean of the last five decides."""
    chosen = settings(tmp_path, model_dir, batches_min=6, stop_reward=0.5, batches_max=20)
    history = [e for n in range(20) for e in group(f"g{n:02d}", [0.0, 1.0, 1.0, 0.0], at_us=n)]
    log, collaborators = world_of(chosen, history)
    TrainingRun(chosen, collaborators).run()
    (ended,) = events(log, RunEnded)
    assert (ended.reason, ended.batches) == ("stop_reward", 6)


@pytest.mark.parametrize(
    ("first", "again", "says"),
    [
        ({"batches_max": 1}, {"batches_max": 1}, "after 1 batches, and nothing was done; batches_max is 1: a larger"),
        ({"batches_max": 2}, {"batches_max": 1}, "batches_max is 1"),
        ({"batches_max": 9, "stop_reward": 0.5}, {"batches_max": 20, "stop_reward": 0.5}, "reached stop_reward 0.5"),
    ],
)
def test_a_run_that_is_over_stays_over_and_says_why(tmp_path, model_dir, first, again, says):
    """Started again after its end with nothing that lets it go further, it trains nothing, writes nothing and names the setting."""
    chosen = settings(tmp_path, model_dir, **first)
    history = [e for n in range(12) for e in group(f"g{n:02d}", [0.0, 1.0, 1.0, 0.0], at_us=n)]
    log, collaborators = world_of(chosen, history)
    TrainingRun(chosen, collaborators).run()
    ends = log.end_offsets([BATCHES, WEIGHTS])
    (ended,) = events(log, RunEnded)
    once_more = settings(tmp_path, model_dir, **again)
    _, collaborators = world_of(once_more, history, log=log)
    run = TrainingRun(once_more, collaborators)
    assert run.run() == "over"
    assert says in run.why_over
    assert (run.standing["batches"], run.version) == (ended.batches, ended.version)
    assert log.end_offsets([BATCHES, WEIGHTS]) == ends


GAE = {"algorithm": "gae", "groups_per_batch": 2, "group_size": 4, "staleness_max": 100}
GRPO = {**GAE, "algorithm": "grpo"}


@pytest.mark.parametrize(
    ("first", "further", "spec"),
    [
        ({"batches_max": 2}, {"batches_max": 4}, GRPO),
        ({"batches_max": 2, "checkpoint_every": 3}, {"batches_max": 4, "checkpoint_every": 3}, GAE),
        ({"batches_max": 6, "stop_reward": 0.5}, {"batches_max": 6, "stop_reward": 0.9}, GRPO),
    ],
    ids=["batches_max", "critic, no checkpoint", "stop_reward"],
)
def test_a_run_that_ended_goes_on_where_its_settings_go_further(tmp_path, model_dir, first, further, spec):
    """As if it had never ended: the same plans, the same bytes of each version and of the critic, numbers that go on."""
    history = [e for n in range(14) for e in group(f"g{n:02d}", [0.0, 1.0, 1.0, 0.0], at_us=n)]
    straight = settings(tmp_path / "straight", model_dir, **further, spec=spec)
    calm, collaborators = world_of(straight, history)
    assert TrainingRun(straight, collaborators).run() == "finished"

    chosen = settings(tmp_path / "twice", model_dir, **first, spec=spec)
    log, collaborators = world_of(chosen, history)
    assert TrainingRun(chosen, collaborators).run() == "finished"
    (ended,) = events(log, RunEnded)
    chosen = settings(tmp_path / "twice", model_dir, **further, spec=spec)
    _, collaborators = world_of(chosen, history, log=log)
    assert TrainingRun(chosen, collaborators).run() == "finished"

    assert [(e.sequence, e.version, e.critic_digest) for e in events(log, BatchTrained)] == [
        (e.sequence, e.version, e.critic_digest) for e in events(calm, BatchTrained)
    ]
    assert {e.version: e.digest for e in events(log, WeightsPublished)} == {
        e.version: e.digest for e in events(calm, WeightsPublished)
    }
    assert [e.batches for e in events(log, RunEnded)] == [ended.batches, events(calm, RunEnded)[0].batches]
    assert ended.batches < events(log, RunEnded)[1].batches
    assert [e.incarnation for e in events(log, RunStarted)] == [1, 2]


def test_a_second_run_mixes_nothing(tmp_path, model_dir):
    """Another run on the same log begins with version 0 and trains no call of the first."""
    first = settings(tmp_path / "a", model_dir, batches_max=1)
    log, collaborators = world_of(first, two_batches())
    TrainingRun(first, collaborators).run()
    second = settings(tmp_path / "b", model_dir, batches_max=1, run_id="second")
    history = two_batches() + [e for n in range(2) for e in group(f"s{n}", [0.0, 1.0], run="second", at_us=n)]
    _, other = world_of(second, history, log=log)
    assert TrainingRun(second, other).run() == "finished"
    plan = [e for e in events(log, BatchAssembled) if e.run_id == "second"]
    assert {t.group_id for t in plan[0].trajectories} == {"s0", "s1"}
    assert [e.version for e in events(log, WeightsPublished) if e.run_id == "second"] == [0, 1, 1]


def test_another_model_under_the_same_run_is_refused(tmp_path, model_dir):
    """Version 0 of a run names one set of bytes."""
    stop = threading.Event()
    chosen = settings(tmp_path / "a", model_dir)
    log, collaborators = world_of(chosen, [], lambda _: stop.set(), stop)
    TrainingRun(chosen, collaborators).run()
    other = settings(tmp_path / "b", make_model(tmp_path / "other", seed=5), allow_change=("model_dir",))
    _, again = world_of(other, [], log=log)
    with pytest.raises(CheckpointInvalid, match="began with"):
        TrainingRun(other, again).run()


def test_settings_that_would_make_another_run_are_refused_before_anything_is_written(tmp_path, model_dir):
    """By name; the run goes on with them once somebody allows it, and what changes nothing needs no leave."""
    chosen = settings(tmp_path, model_dir, batches_max=2)
    log, collaborators = world_of(chosen, two_batches(), stop=threading.Event())
    collaborators.stop.set()
    assert TrainingRun(chosen, collaborators).run() == "stopped"
    ends = log.end_offsets([BATCHES, WEIGHTS])
    changed = {"learning_rate": 0.5, "batches_max": 1}
    _, again = world_of(settings(tmp_path, model_dir), two_batches(), log=log)
    with pytest.raises(SettingsInvalid, match=r"learning_rate was 0\.01 and is 0\.5") as refused:
        TrainingRun(settings(tmp_path, model_dir, **changed), again).run()
    assert "batches_max" not in str(refused.value)
    assert log.end_offsets([BATCHES, WEIGHTS]) == ends
    allowed = settings(tmp_path, model_dir, **changed, allow_change=("learning_rate",))
    _, again = world_of(allowed, two_batches(), log=log)
    assert TrainingRun(allowed, again).run() == "finished"


def test_other_adapters_are_another_run(tmp_path, model_dir):
    """Each of their settings is refused by its name, and so are adapters where there were none."""
    log, first = world_of(settings(tmp_path, model_dir, batches_max=1, lora={"rank": 2}), two_batches())
    TrainingRun(settings(tmp_path, model_dir, batches_max=1, lora={"rank": 2}), first).run()
    for lora, named in (({"rank": 2, "alpha": 8}, "lora.alpha was 32"), ({}, "lora.rank was 2 and is 0")):
        changed = settings(tmp_path, model_dir, lora=lora)
        _, again = world_of(changed, two_batches(), log=log)
        with pytest.raises(SettingsInvalid, match=named):
            TrainingRun(changed, again).run()


def test_a_checkpoint_of_another_log_is_refused(tmp_path, model_dir):
    """A checkpoint whose batch the log never planned means that the log was replaced."""
    chosen = settings(tmp_path, model_dir, batches_max=1)
    _, collaborators = world_of(chosen, two_batches())
    TrainingRun(chosen, collaborators).run()
    _, fresh = world_of(chosen, two_batches())
    with pytest.raises(CheckpointInvalid, match="never planned"):
        TrainingRun(chosen, fresh).run()


def in_pairs(*names, broken=()):
    """Groups of two whose second calls are written against the first; of the broken ones one says another digest."""
    captured = []
    for at_us, name in enumerate(names):
        members = [written_against_c0(event, BASES) for event in group(name, [0.0, 1.0], at_us=at_us)]
        captured += [wrongly_digested(event) for event in members] if name in broken else members
    return captured


def wrongly_digested(event):
    if getattr(event, "call_id", None) != "c1" or event.trajectory_id != "t1":
        return event
    return replace(event, prompt=replace(event.prompt, full_digest="0" * 64))


PAIRS = SPEC.model_copy(update={"group_size": 2})


def test_a_group_whose_prompts_cannot_be_put_together_is_left_out_by_name(tmp_path, model_dir):
    """Before the plan is committed: its capacity returns, other groups fill the batch, the run goes on."""
    chosen = settings(tmp_path, model_dir, spec=PAIRS, batches_max=2)
    log, collaborators = world_of(chosen, in_pairs("a", "b", "c", "d", "e", "f", broken={"b", "e"}))
    assert TrainingRun(chosen, collaborators).run() == "finished"
    assert [(e.group_ids, e.reason, e.sequence) for e in events(log, BatchSkipped)] == [
        (("b",), "prompt_mismatch: c1", None),
        (("e",), "prompt_mismatch: c1", None),
    ]
    assert [groups_of(plan) for plan in events(log, BatchAssembled)] == [("a", "c"), ("d", "f")]
    assert [(e.sequence, e.version) for e in events(log, BatchTrained)] == [(0, 1), (1, 2)]


@pytest.mark.parametrize("odd", [VOCABULARY, -1])
def test_a_group_with_a_token_that_the_model_does_not_know_is_left_out_by_name(tmp_path, model_dir, odd):
    """The forward pass would raise at it, and at every restart again, once its plan is committed."""
    history = [e for n, name in enumerate("abc") for e in group(name, [0.0, 1.0], at_us=n)]
    history += group("0", [0.0, 1.0], ids=((5, 6), (7, odd, 8), (9,)))
    chosen = settings(tmp_path, model_dir, spec=PAIRS, batches_max=1)
    log, collaborators = world_of(chosen, history)
    assert TrainingRun(chosen, collaborators).run() == "finished"
    assert [(e.group_ids, e.reason) for e in events(log, BatchSkipped)] == [(("0",), "token_unknown: c1")]
    assert [groups_of(plan) for plan in events(log, BatchAssembled)] == [("a", "b")]


def test_groups_whose_facts_are_gone_are_left_out_by_name(tmp_path, model_dir):
    """Retention may be ahead of the run: the batch is filled with what can still be read, it is never a smaller one."""
    chosen = settings(tmp_path, model_dir, batches_max=1)
    log, collaborators = world_of(chosen, two_batches())
    cut(collaborators, "g0")
    assert TrainingRun(chosen, collaborators).run() == "finished"
    assert [(e.group_ids, e.reason) for e in events(log, BatchSkipped)] == [(("g0",), "facts_cut")]
    assert [groups_of(plan) for plan in events(log, BatchAssembled)] == [("g1", "g2")]


def test_a_plan_that_cannot_be_read_any_more_is_given_up_by_an_event(tmp_path, model_dir):
    """Once, whoever is stopped when: its number stays taken, its groups are never planned again, the next batch is whole."""
    chosen = settings(tmp_path, model_dir, spec=PAIRS, batches_max=2)
    history = in_pairs("a", "b", "c", "d", "e", "f")
    stop = threading.Event()
    log, first = world_of(chosen, history, stopping_at(Milestone.PLANNED, stop), stop)
    assert TrainingRun(chosen, first).run() == "stopped"
    stop = threading.Event()
    _, second = world_of(chosen, history, stopping_at(Milestone.PLANNED, stop), stop, log)
    cut(second, "a", "b")
    assert TrainingRun(chosen, second).run() == "stopped"
    (given_up,) = events(log, BatchSkipped)
    assert (given_up.sequence, given_up.group_ids, given_up.reason) == (0, ("a", "b"), "plan_unreadable: facts_cut")
    _, third = world_of(chosen, history, log=log)
    cut(third, "a", "b")
    assert TrainingRun(chosen, third).run() == "finished"
    assert events(log, BatchSkipped) == [given_up]
    assert [(p.sequence, groups_of(p)) for p in events(log, BatchAssembled)] == [
        (0, ("a", "b")),
        (1, ("c", "d")),
        (2, ("e", "f")),
    ]
    assert [(e.sequence, e.version) for e in events(log, BatchTrained)] == [(1, 1), (2, 2)]
    (ended,) = events(log, RunEnded)
    assert (ended.batches, ended.version) == (2, 2)


def test_a_batch_that_was_given_up_stays_so_whatever_a_fenced_trainer_keeps_of_it(tmp_path, model_dir):
    """It slept over its training with the rows in memory; meanwhile another one could not read them, and said so."""
    chosen = settings(tmp_path, model_dir, spec=PAIRS, batches_max=1)
    history = in_pairs("a", "b", "c", "d")
    stop = threading.Event()

    def overslept(milestone):
        if milestone == Milestone.TRAINED:
            _, second = world_of(chosen, history, stopping_at(Milestone.PLANNED, stop), stop, log)
            cut(second, "a", "b")
            assert TrainingRun(chosen, second).run() == "stopped"

    log, first = world_of(chosen, history, overslept)
    with pytest.raises(Fenced):
        TrainingRun(chosen, first).run()
    assert [e.sequence for e in events(log, BatchSkipped)] == [0]
    assert [path.name for path in (chosen.out_dir / "checkpoints").iterdir()] == ["00000000-1"]
    _, third = world_of(chosen, history, log=log)
    assert TrainingRun(chosen, third).run() == "finished"
    assert [(e.sequence, e.version) for e in events(log, BatchTrained)] == [(1, 1)]


def test_a_bad_plan_of_an_older_trainer_is_given_up(tmp_path, model_dir):
    """It was committed without a look at its prompts; every restart ended with exit code 2."""
    chosen = settings(tmp_path, model_dir, spec=PAIRS, batches_max=1)
    log, collaborators = world_of(chosen, in_pairs("a", "b", "c", "d", broken={"b"}))
    found = select(collaborators.pool, PAIRS, 0, RUN, ()).chosen
    old = memory_journal(log)
    old.open()
    old.commit(assemble(found, PAIRS, run_id=RUN, sequence=0, version=0, seed=0, envelope=facts.envelope("plan")))
    assert TrainingRun(chosen, collaborators).run() == "finished"
    (given_up,) = events(log, BatchSkipped)
    assert (given_up.sequence, given_up.reason) == (0, "plan_unreadable: prompt_mismatch: c1")
    assert [(e.sequence, e.version) for e in events(log, BatchTrained)] == [(1, 1)]


def test_a_published_batch_that_nobody_can_train_again_is_no_batch_to_give_up(tmp_path, model_dir):
    """Weights with it are out: to go on without it would be another run. One line says what can be done."""
    stop = threading.Event()
    chosen = settings(tmp_path, model_dir, spec=PAIRS, batches_max=2, checkpoint_every=100)
    history = in_pairs("a", "b", "c", "d")
    log, first = world_of(chosen, history, stopping_at(Milestone.PUBLISHED, stop), stop)
    assert TrainingRun(chosen, first).run() == "stopped"
    _, second = world_of(chosen, history, log=log)
    cut(second, "a", "b")
    with pytest.raises(BatchLost, match=r"batch 0 is in published weights but in no checkpoint.*model_dir: file://"):
        TrainingRun(chosen, second).run()
    assert events(log, BatchSkipped) == []


class Slow:
    """A reader that gives one record at a time, and fails at the one that is told."""

    def __init__(self, reader, fails_at=None):
        self._reader, self._left = reader, fails_at

    def __getattr__(self, name):
        return getattr(self._reader, name)

    def poll(self, timeout_s, records_max=500):
        time.sleep(0.001)
        self._left = None if self._left is None else self._left - 1
        if self._left == 0:
            raise LogError("the broker went away")
        return self._reader.poll(timeout_s, 1)


def slow_view(log, fails_at=None):
    return PoolView(SETTINGS, open_reader=lambda: Slow(log.reader(TOPICS), fails_at))


def newest_first():
    return [e for n in reversed(range(8)) for e in group(f"g{n}", [0.0, 1.0, 1.0, 0.0], at_us=n)]


def world_with(log, view, chosen, stop=None):
    """The run's collaborators on a log that holds facts and pool; the view begins to read."""
    _, collaborators = world_of(chosen, [], stop=stop, log=log)
    view.start()
    return dataclasses.replace(collaborators, pool=view, facts=log.lookup())


@pytest.mark.parametrize("start", range(3))
def test_the_first_plan_knows_the_whole_backlog(tmp_path, model_dir, start):
    """However slowly the view reads: the first batch is what `order` says of all that stood in the pool at the start."""
    log = MemoryLog(SETTINGS)
    write_pool(log, newest_first())
    view = slow_view(log)
    chosen = settings(tmp_path, model_dir, batches_max=1)
    assert TrainingRun(chosen, world_with(log, view, chosen)).run() == "finished"
    view.stop()
    assert [groups_of(plan) for plan in events(log, BatchAssembled)] == [("g0", "g1")]


@pytest.mark.slow
def test_a_trainer_that_reads_the_backlog_can_be_stopped(tmp_path, model_dir):
    """It says how far it is; asked to stop it does, without a plan."""
    log, stop = MemoryLog(SETTINGS), threading.Event()
    write_pool(log, newest_first())
    reader = Slow(log.reader(TOPICS))
    reader.poll = lambda timeout_s, records_max=500: []  # it never gets anything
    view = PoolView(SETTINGS, open_reader=lambda: reader)
    chosen = settings(tmp_path, model_dir, wait_log_interval_s=0.01)
    endings = []
    with capture_logs() as logs:
        thread = threading.Thread(
            target=lambda: endings.append(TrainingRun(chosen, world_with(log, view, chosen, stop)).run())
        )
        thread.start()
        until(lambda: any(line["event"] == "reading_pool" for line in logs))
        stop.set()
        thread.join(DEADLINE_S)
    view.stop()
    assert endings == ["stopped"]
    assert next(line["records_left"] for line in logs if line["event"] == "reading_pool") > 8
    assert events(log, BatchAssembled) == []


def test_a_pool_that_cannot_be_read_ends_the_trainer_with_a_reason(tmp_path, model_dir):
    """Nobody waits for a view that died."""
    log = MemoryLog(SETTINGS)
    write_pool(log, newest_first())
    view = slow_view(log, fails_at=30)
    chosen = settings(tmp_path, model_dir)
    with pytest.raises(LogError, match="the broker went away"):
        TrainingRun(chosen, world_with(log, view, chosen)).run()
    assert events(log, BatchAssembled) == []


def sampled_by(policy, *names):
    """Groups that were opened for this run and sampled by another policy."""
    history = [e for at_us, name in enumerate(names) for e in group(name, [0.0, 1.0], at_us=at_us)]
    return [
        replace(e, spans=tuple(replace(span, run_id=policy) for span in e.spans)) if hasattr(e, "spans") else e
        for e in history
    ]


MANY = [f"n{n:02d}" for n in range(25)]


def test_a_run_that_trains_nothing_says_so_loudly_and_once(tmp_path, model_dir):
    """A worker under another model id samples what this run may not train: 20 groups are enough, also for `claw status`."""
    stop, warnings = threading.Event(), tmp_path / "warnings.json"
    chosen = settings(tmp_path, model_dir, warnings_file=warnings)
    _, collaborators = world_of(chosen, sampled_by("default", *MANY), stop=stop)
    with capture_logs() as logs:
        thread = threading.Thread(target=TrainingRun(chosen, collaborators).run)
        thread.start()
        until(warnings.exists)
        stop.set()
        thread.join(DEADLINE_S)
    (line,) = [line for line in logs if line["event"] == "groups_skipped_in_a_row"]
    assert (line["log_level"], line["groups"], line["reason"]) == ("warning", 20, "policy_of_other_run: default")
    assert "model_id tiny" in line["what_to_do"]
    (shown,) = json.loads(warnings.read_text())
    assert shown.startswith("skipped 20 groups in a row, the last because of policy_of_other_run: default: ")
    assert line["what_to_do"] in shown


@pytest.mark.parametrize(("skipped", "warning_count"), [(MANY, 1), (MANY[:19], 0)], ids=["many", "few"])
def test_with_a_batch_the_count_of_skipped_groups_begins_anew(tmp_path, model_dir, skipped, warning_count):
    """Neither 19 groups nor those before a batch are left standing as a warning."""
    warnings = tmp_path / "warnings.json"
    warnings.write_text('["of the incarnation before"]')
    chosen = settings(tmp_path, model_dir, warnings_file=warnings, batches_max=1)
    _, collaborators = world_of(chosen, [*sampled_by("default", *skipped), *two_batches()])
    with capture_logs() as logs:
        assert TrainingRun(chosen, collaborators).run() == "finished"
    assert sum(line["event"] == "groups_skipped_in_a_row" for line in logs) == warning_count
    assert not warnings.exists()
