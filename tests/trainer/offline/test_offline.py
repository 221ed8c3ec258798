"""Training on what was sampled before: from the pool, from a dataset, to the same bytes, and never into the log."""

import os
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from claw_r1.consumers.export.choose import choose
from claw_r1.consumers.export.rows import step_rows
from claw_r1.consumers.export.tables import STEPS, TableWriter
from claw_r1.datapool.batch.anchor_states import MAIN_LINE, states_of
from claw_r1.datapool.batch.figures import figures_of
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.fold import fold
from claw_r1.eventlog.errors import LogError
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchTrained,
    CallCaptured,
    FactPosition,
    Integrity,
    RunEnded,
    TrajectoryCompleted,
    WeightsPublished,
)
from claw_r1.trainer.app import NoWeightServer
from claw_r1.trainer.compose import learner_of
from claw_r1.trainer.dependencies import Milestone, TrainerDependencies
from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.trainer.offline.dataset import OfflineDataset
from claw_r1.trainer.offline.journal import file_journal, records
from claw_r1.trainer.offline.samples import AnybodysSamples, unaged
from claw_r1.trainer.run import TrainingRun
from tests import facts
from tests.trainer.incarnation import SPEC, settings
from tests.trainer.pooled import group, pooled
from tests.trainer.runs_in_memory import stopping_at

LATER = (
    "base_call_id",
    "base_keep",
    "trajectory_status",
    "trajectory_counted",
    "trajectory_ready",
    "trajectory_reasons",
    "group_tags",
    "group_progress_us",
)
"""Columns that datasets before format 4 lack."""


def history(groups=5):
    """Sampled by two other runs, at versions that this one never has."""
    made = []
    for n in range(groups):
        of_run = {"run": f"other{n % 2}", "version": 7 + n, "at_us": n}
        made += group(f"g{n}", [0.0, 1.0, 1.0, 0.0], ids=((5, 6, 7 + n), (8, 9)), **of_run)
        made.append(facts.reward(f"g{n}", "t1", 0.5, call_id="c0", source="judge"))
        made.append(facts.curated(f"g{n}", "t2", "c1", trainable=False))
    return made


def from_pool():
    made = pooled(history())
    return made.pool, made.log.lookup()


def exported(folder, spec=SPEC, events=None):
    """`steps.parquet` as `claw export --spec` writes it."""
    folder.mkdir()
    states, calls = {}, {}
    for offset, fact in enumerate(events or history()):
        position = FactPosition(topic=facts.topic_of(fact), partition=0, offset=offset)
        states[fact.group_id] = fold(states.get(fact.group_id), fact, position)
        if isinstance(fact, CallCaptured):
            calls.setdefault((fact.group_id, fact.trajectory_id), {})[fact.call_id] = fact
    writer = TableWriter(folder / "steps.parquet", STEPS)
    for state in states.values():
        for chosen in choose(state, spec):
            for row in step_rows(chosen, calls[chosen.group.group_id, chosen.record.trajectory_id]):
                writer.write(row)
    writer.close()
    return folder


def as_of_format_3(path):
    """Takes away from `steps.parquet` what exports of format 3 did not tell."""
    table = pq.read_table(path).drop_columns(list(LATER))
    for name in ("rewards", "trajectory_rewards"):
        cells = [
            [{field: slot[field] for field in ("source", "name", "value", "revision")} for slot in cell]
            for cell in table[name].to_pylist()
        ]
        table = table.set_column(table.column_names.index(name), name, pa.array(cells))
    pq.write_table(table, path)


def world(chosen, pool, lookup, reached=lambda _: None, stop=None):
    return TrainerDependencies(
        learner=learner_of(chosen),
        pool=pool,
        facts=lookup,
        journal=file_journal(chosen.out_dir / "journal", chosen.run_id),
        transfer_server=NoWeightServer(),
        stop=stop or threading.Event(),
        producer="trainer/test",
        reached=reached,
        pool_grows=False,
    )


def trained(chosen, pool, lookup):
    """The events of a run on the samples until they are used up."""
    chosen = unaged(chosen)
    dependencies = world(chosen, AnybodysSamples(pool, chosen.run_id), lookup)
    assert TrainingRun(chosen, dependencies).run() == "finished"
    dependencies.journal.close()
    return of_journal(chosen)


def of_journal(chosen):
    return [record.event() for record in records(chosen.out_dir / "journal")]


def selected(pool, spec):
    """The groups of the next batch, each with its members and their returns; then those that it passes over, with reasons."""
    selection = select(pool, spec, 0, "mine", ())
    chosen = [
        (group.record.group_id, [(one.record.trajectory_id, one.earned.total) for one in group.members])
        for group in selection.chosen
    ]
    return chosen, {**selection.left_out, **selection.skipped}


def of_both(folder, events, spec):
    """`selected` of the pool, and of the dataset of everything that is exported without a spec."""
    dataset = OfflineDataset(exported(folder, None, events), "mine", spec)
    return selected(AnybodysSamples(pooled(events).pool, "mine"), spec), selected(dataset, spec)


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


def test_a_pool_is_trained_whoever_sampled_it(tmp_path, model_dir):
    """Every whole batch once, however old the samples are; the groups that make none are left; the end says why."""
    spec = SPEC.model_copy(update={"stale": "tokens", "staleness_max": 0})
    events = trained(settings(tmp_path, model_dir, run_id="mine", spec=spec), *from_pool())
    plans = of(events, BatchAssembled)
    assert [sorted({t.group_id for t in plan.trajectories}) for plan in plans] == [["g0", "g1"], ["g2", "g3"]]
    assert {t.min_version for plan in plans for t in plan.trajectories} == {None}
    assert [(e.reason, e.batches, e.version) for e in of(events, RunEnded)] == [("pool_used_up", 2, 2)]
    assert all(e.metrics["grad_norm"] > 0 for e in of(events, BatchTrained))


def test_a_dataset_is_trained_as_the_pool_that_it_was_exported_from(tmp_path, model_dir):
    """The same batches, rewards and advantages, and the same bytes: nothing that training reads is lost on the way."""
    pool = trained(settings(tmp_path / "pool", model_dir, run_id="mine"), *from_pool())
    dataset = OfflineDataset(exported(tmp_path / "dataset"), "mine", SPEC)
    again = trained(settings(tmp_path / "again", model_dir, run_id="mine"), dataset, dataset)
    first, second = (
        [
            [(t.group_id, t.trajectory_id, t.reward, t.advantage, [(s.call_id, s.digest, s.trained) for s in t.steps])
             for t in plan.trajectories]
            for plan in of(events, BatchAssembled)
        ]
        for events in (pool, again)
    )  # fmt: skip
    assert second == first
    assert not all(step[2] for batch in first for trajectory in batch for step in trajectory[4])
    assert [e.digest for e in of(again, WeightsPublished)] == [e.digest for e in of(pool, WeightsPublished)]


def test_an_episode_of_a_dataset_has_no_length_in_time(tmp_path):
    """Rows say when a call came, and not when its reply was over: no number rather than one of minus a billion seconds."""
    dataset = OfflineDataset(exported(tmp_path / "dataset"), "mine", SPEC)
    groups = select(dataset, SPEC, 0, "mine", ()).chosen
    assert {figures_of(member).seconds for group in groups for member in group.members} == {None}


def unfinished(judged):
    """A group of five whose third gave up and whose fourth is open still, scored or not; the last two came too late."""
    made = group("g", [0.0, 1.0, 1.0, 1.0, 1.0])
    made = [
        event for event in made if not (isinstance(event, TrajectoryCompleted) and event.trajectory_id in ("t2", "t3"))
    ]
    made.append(facts.abandoned("g", "t2"))
    made += [facts.reward("g", name, 0.9) for name in ("t2", "t3") if judged]
    return [*made, facts.closed("g", ("t0", "t1", "t2"))]


@pytest.mark.parametrize("judged", [True, False], ids=["judged", "unjudged"])
@pytest.mark.parametrize("unfinished_members", ["drop", "train"])
def test_a_dataset_of_everything_drops_what_the_pool_drops(tmp_path, judged, unfinished_members):
    """An episode that gave up is a member where the spec says so alone; one that is open or late never is."""
    spec = BatchSpec(groups_per_batch=1, group_size=4, unfinished=unfinished_members)
    pool, dataset = of_both(tmp_path / "dataset", unfinished(judged), spec)
    given_up = [("t2", 0.9)] if judged and unfinished_members == "train" else []
    assert dataset == pool
    assert dataset == ([("g", [("t0", 0.0), ("t1", 1.0), *given_up])], {})


def test_a_group_of_a_dataset_counts_as_closed_without_its_open_members(tmp_path):
    """The pool waits for them; nothing comes to a dataset any more."""
    spec = BatchSpec(groups_per_batch=1, group_size=5)
    pool, dataset = of_both(tmp_path / "dataset", unfinished(judged=True)[:-1], spec)
    assert pool[1] == {"g": "not_ready: members_missing, members_open"}
    assert dataset == ([("g", [("t0", 0.0), ("t1", 1.0), ("t4", 1.0)])], {})


def test_a_dataset_that_tells_nothing_of_its_trajectories_is_read_as_before(tmp_path):
    """The exports before format 4: all of their trajectories are completed members."""
    folder = exported(tmp_path / "dataset", None, unfinished(judged=True))
    as_of_format_3(folder / "steps.parquet")
    spec = BatchSpec(groups_per_batch=1, group_size=4)
    ((_, members),), _ = selected(OfflineDataset(folder, "mine", spec), spec)
    assert [name for name, _ in members] == ["t0", "t1", "t2", "t3", "t4"]


BY_TAGS = {
    "environments": BatchSpec(group_size=2, groups_per_batch=2, environments={"maths": 0.5, "code": 0.5}),
    "priority": BatchSpec(group_size=2, groups_per_batch=1, order="priority"),
}


def tagged():
    """Three groups of two environments, the later the more urgent; the first was progressing last."""
    made = []
    for n, environment in enumerate(("maths", "maths", "code")):
        made += group(f"g{n}", [0.0, 1.0], tags=(f"env:{environment}", f"priority:{n}"), at_us=n)
    return [*made, facts.reward("g0", "t1", 0.5, source="judge", envelope=facts.envelope(at_us=9))]


@pytest.mark.parametrize("name", [*BY_TAGS, "fifo"])
def test_a_dataset_keeps_what_groups_are_chosen_by(tmp_path, name):
    """Tags and progress of a group, as the pool has them."""
    spec = BY_TAGS.get(name, BatchSpec(group_size=2, groups_per_batch=1))
    pool, dataset = of_both(tmp_path / "dataset", tagged(), spec)
    assert dataset == pool
    chosen = {"environments": ["g1", "g2"], "priority": ["g2"], "fifo": ["g1"]}
    assert [group_id for group_id, _ in dataset[0]] == chosen[name]


@pytest.mark.parametrize("name", BY_TAGS)
def test_a_dataset_without_tags_of_groups_is_refused_where_the_spec_reads_them(tmp_path, name):
    """In one line, before anything is trained."""
    folder = exported(tmp_path / "dataset", None, tagged())
    as_of_format_3(folder / "steps.parquet")
    with pytest.raises(SettingsInvalid, match=rf"spec\..*{name} reads tags of groups.*export again"):
        OfflineDataset(folder, "mine", BY_TAGS[name])


def people(times, call_id=None):
    """Rewards of one name for `g/t0`, by two people: 1 and then 0."""
    return [
        facts.reward("g", "t0", value, source=f"human:{who}", name="overall", call_id=call_id, envelope=facts.envelope(at_us=at))
        for who, value, at in zip(("alice", "bob"), (1.0, 0.0), times, strict=True)
    ]  # fmt: skip


def test_a_verdict_outranks_a_word_of_its_scorer_in_a_dataset_too(tmp_path):
    """Whatever the revision of that word, and under weights, where the total is not the pool's."""
    spec = BatchSpec(groups_per_batch=1, group_size=3, reward_weights={"judge/style": 2.0})
    verdict = facts.reward("g", "t0", 0.2, source="judge", name="style", call_id="c0", verdict=facts.verdict())
    word = facts.reward("g", "t0", 0.9, source="judge", name="style", step_index=0, revision=5)
    pool, dataset = of_both(tmp_path / "dataset", [*group("g", [1.0, 1.0, 0.5]), verdict, word], spec)
    assert dataset == pool
    assert dataset[0] == [("g", [("t0", 1.4), ("t1", 1.0), ("t2", 0.5)])]


@pytest.mark.parametrize("call_id", [None, "c0"], ids=["of_trajectory", "of_call"])
def test_the_latest_reward_of_a_dataset_is_the_one_that_was_given_last(tmp_path, call_id):
    """Among several people's of one subject, as in the pool; not the highest."""
    spec = BatchSpec(groups_per_batch=1, group_size=3, reward_merge="latest")
    for times, value in (((10, 20), 0.0), ((20, 10), 1.0)):
        events = [*group("g", [None, 1.0, 0.5]), *people(times, call_id)]
        pool, dataset = of_both(tmp_path / f"{value}", events, spec)
        assert dataset == pool
        assert dataset[0] == [("g", [("t0", value), ("t1", 1.0), ("t2", 0.5)])]


def test_a_dataset_knows_side_calls(tmp_path):
    """What a call is for was told from all calls of its trajectory, and stands in the dataset as the pool told it."""
    made = group("g", [0.0, 1.0], ids=((5, 6), (8, 9)))
    events = [replace(one, has_tools=one.call_id == "c1") if isinstance(one, CallCaptured) else one for one in made]
    dataset = OfflineDataset(exported(tmp_path / "dataset", events=events), "mine", SPEC)
    (record,) = dataset.groups()
    members = dataset.members(record)
    assert [[step.tags for step in steps] for _, steps in members] == [[("kind:side",), ()]] * 2


def written(trajectory, name, prompt, response, base=None, keep=0, agent="solver", at=0):
    """A call whose prompt is written against another, or in full."""
    fields = {"ids": response, "agent": agent, "received_us": at, "prompt": facts.edge(prompt)}
    if base is not None:
        edge = replace(facts.edge(prompt[keep:], base=base.call_id, keep=keep), full_digest=whole_digest(prompt))
        fields |= {"prompt": edge, "base_digest": facts.written_against(base, keep)}
    return facts.call("g", trajectory, name, **fields)


def whole_digest(prompt):
    return facts.edge(prompt).full_digest


def with_branches():
    """Members that ask a critic in between, or begin anew with the same instructions, and one that goes straight on."""
    question, made = list(range(10)), []
    for trajectory, reward in (("a", 1.0), ("b", 0.0), ("d", 0.5)):
        answer = (20 + len(made),) * 3
        first = written(trajectory, "c0", question, answer)
        whole = [*question, *answer]
        critic = written(trajectory, "s", [*range(100, 130), *answer], (5, 5), agent="critic", at=1)
        anew = written(trajectory, "r", [0, *range(40, 80)], (6, 6), first, 1, at=2)
        between = [] if trajectory == "d" else [critic, anew]
        last = written(trajectory, "c1", [*whole, *[9] * 60], (7, 7), first, len(whole), at=3)
        own = [facts.started("g", trajectory), first, *between, last]
        made += [*own, facts.completed("g", trajectory, calls=len(own) - 1, reward=reward)]
    return [*made, facts.closed("g", ("a", "b", "d"))]


def test_the_lines_of_a_trajectory_are_those_of_the_pool(tmp_path):
    """`step_grpo` compares calls by them: whose a call is and what it was written against are in the dataset."""
    spec = BatchSpec(algorithm="step_grpo", group_size=3, groups_per_batch=1, tags_exclude=())
    pool = AnybodysSamples(pooled(with_branches()).pool, "mine")
    dataset = OfflineDataset(exported(tmp_path / "dataset", None, with_branches()), "mine", spec)
    places = [
        [(step.call_id, state.line, state.depth) for step, state in zip(steps, states_of(steps), strict=True)]
        for of in (pool, dataset)
        for record in of.groups()
        for _, steps in of.members(record)
    ]
    assert places[:3] == places[3:]
    assert [[(name, depth) for name, line, depth in own if line == MAIN_LINE] for own in places[:3]] == [
        [("c0", 0), ("c1", 1)]
    ] * 3
    assert len(places[0]) == 4


def test_replies_without_ids_are_context_of_a_dataset(tmp_path):
    """The pool has their messages rendered; nobody is trained on a reply without its prompt, or on nothing at all."""
    spec = BatchSpec(preset="sft_logged", groups_per_batch=1)
    missing = ("token_ids", "logprobs", "spans")
    bare = {"prompt": facts.edge(()), "response_logprobs": b"", "spans": ()}
    texts = [
        facts.call(
            "g", "t", "c", ids=(), integrity=Integrity(complete=False, missing=("prompt_ids", *missing)), **bare
        ),
        facts.call("g", "t", "d", integrity=Integrity(complete=False, missing=("prompt_ids", *missing[1:])), **bare),
    ]
    events = [facts.started("g", "t"), *texts, facts.completed("g", "t", calls=2, reward=1.0)]
    dataset = OfflineDataset(exported(tmp_path / "dataset", spec, events), "mine", spec)
    assert selected(dataset, spec) == ([], {"g": "nothing_trainable: "})
    assert pq.read_table(tmp_path / "dataset/steps.parquet")["trained"].to_pylist() == [True, True]


def test_a_stopped_run_goes_on_from_its_file(tmp_path, model_dir):
    """Same bytes as without the stop; a transaction that a crash cut in the middle is as if it had never begun."""
    undisturbed = trained(settings(tmp_path / "a", model_dir, run_id="mine"), *from_pool())
    chosen = settings(tmp_path / "b", model_dir, run_id="mine")
    stop = threading.Event()
    pool, lookup = from_pool()
    first = world(chosen, AnybodysSamples(pool, "mine"), lookup, stopping_at(Milestone.PUBLISHED, stop), stop)
    assert TrainingRun(chosen, first).run() == "stopped"
    first.journal.close()
    with (chosen.out_dir / "journal").open("ab") as file:
        file.write(b'[["training.batches", "')
    events = trained(chosen, *from_pool())
    assert of(events, WeightsPublished)[-1].digest == of(undisturbed, WeightsPublished)[-1].digest
    assert [e.sequence for e in of(events, BatchTrained)] == [0, 1]


def test_a_second_trainer_in_the_same_directory_is_refused(tmp_path, model_dir):
    """The lock is the first one's as long as it lives."""
    journal = file_journal(tmp_path / "journal", "mine")
    journal.open()
    with pytest.raises(SettingsInvalid, match="another trainer"):
        file_journal(tmp_path / "journal", "mine").open()
    journal.close()
    file_journal(tmp_path / "journal", "mine").open()


def test_what_is_no_dataset_is_told_in_one_line(tmp_path):
    """Before anything else is loaded."""
    with pytest.raises(SettingsInvalid, match="neither `pool` nor a dataset"):
        OfflineDataset(tmp_path, "mine", SPEC)


def test_a_full_disk_leaves_nothing_of_a_transaction(tmp_path, monkeypatch):
    """Neither half a line nor one that the next is glued to: a later start reads all that was committed."""
    journal = file_journal(tmp_path / "journal", "run")
    journal.open()
    event = RunEnded(envelope=facts.envelope(), run_id="run", status="finished", batches=0, version=0)
    journal.commit(event)
    write = os.write
    monkeypatch.setattr("os.write", lambda descriptor, data: write(descriptor, data[:10]))
    with pytest.raises(LogError):
        journal.commit(event)
    monkeypatch.undo()
    journal.commit(event)
    journal.close()
    assert len(list(records(tmp_path / "journal"))) == 2
