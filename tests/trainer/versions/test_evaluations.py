"""The evaluation of versions: what counts, what is best, what is kept, and that training waits for it."""

import itertools
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from msgspec import structs

from claw_r1.datapool.runs import Run
from claw_r1.datapool.view.view import TOPICS, PoolView
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import encode
from claw_r1.schemas.evaluation import EvaluatedTask
from claw_r1.schemas.events import BatchTrained, GroupRecord, TrajectoryRecord, VersionEvaluated
from claw_r1.schemas.keys import group_key
from claw_r1.streams.partition.state import PartitionState
from claw_r1.trainer.app import may_concern
from claw_r1.trainer.dependencies import Milestone
from claw_r1.trainer.metrics import TrainerMetrics
from claw_r1.trainer.run import TrainingRun
from claw_r1.trainer.versions.evaluations import EvaluatedGroup, Evaluations, pass_at, score
from tests import facts
from tests.trainer.incarnation import RUN, SPEC, settings
from tests.trainer.pooled import ReadRows, apply_to, group, pooled, random_groups, rows_of
from tests.trainer.runs_in_memory import events, world_of

SAMPLES = 3


def part(version, kind, number, tasks=2, samples=SAMPLES, every=2):
    return EvaluatedTask(version=version, kind=kind, task=number, tasks=tasks, samples=samples, every=every, solved=1.0)


def evaluation(version, greedy, samples, sampled_by=None):
    """Facts of a whole evaluation. greedy: a return per task; samples: returns per task."""
    history = []
    for kind, returns in (("greedy", [[value] for value in greedy]), ("sample", samples)):
        for number, values in enumerate(returns):
            tags = part(version, kind, number).tags()
            named = f"e{version}-{kind}{number}"
            by = version if sampled_by is None else sampled_by
            temperature = 0.0 if kind == "greedy" else 1.0
            history += group(named, values, version=by, channel="val", tags=tags, temperature=temperature)
    return history


def watching(exports, pool, version, *, clock=time.monotonic, evaluated=(), stop=None, metrics=None, **chosen):
    """Evaluations beside a run that is at `version`, and the events that they commit. stop: what they wait by; None: a wait is
    an error."""
    committed = []
    dependencies = SimpleNamespace(
        pool=pool,
        journal=SimpleNamespace(commit=committed.append),
        producer="test",
        stop=stop,
        raise_if_stopped=lambda: None,
        metrics=metrics,
    )
    progress, writer = SimpleNamespace(named_version=version, version=version), SimpleNamespace(wait=lambda: None)
    chosen, publisher = settings(exports, exports / "model", **chosen), SimpleNamespace(exports=exports)
    earlier = {event.version: event for event in evaluated}
    return Evaluations(chosen, dependencies, progress, publisher, writer, earlier, clock), committed


@pytest.mark.parametrize(
    ("n", "c", "k", "share"), [(5, 2, 1, 0.4), (5, 2, 2, 0.7), (5, 0, 3, 0.0), (5, 3, 3, 1.0), (10, 1, 4, 0.4)]
)
def test_pass_at_k_is_that_of_its_authors(n, c, k, share):
    """1 - C(n-c, k) / C(n, k), and the share of all choices of k samples that hold a solution."""
    assert pass_at(n, c, k) == pytest.approx(share)
    choices = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices))


def row(returned, first=4, last=4, run=RUN, reasons=()):
    failed = "failed_without_outcome" in reasons
    return TrajectoryRecord(
        group_id="g", trajectory_id="t", status="failed" if failed else "completed", ready=not reasons, return_total=returned,
        min_version=first, max_version=last, policy_run_id=run, reasons=reasons,
    )  # fmt: skip


def test_an_episode_counts_for_the_version_that_sampled_all_of_it():
    """One that two versions, or those of another run, sampled, or that is not over, is left out; a failed one earned nothing."""
    record = GroupRecord(group_id="g", declared=True, ready=False)
    failed = row(None, reasons=("failed_without_outcome", "no_trainable_call"))
    parts = [
        EvaluatedGroup(part(4, "greedy", 0), record, [row(1.0, reasons=("no_trainable_call",))]),
        EvaluatedGroup(part(4, "greedy", 1), record, [failed]),
        EvaluatedGroup(part(4, "sample", 0), record, [row(1.0), row(0.0), row(1.0, last=5)]),
        EvaluatedGroup(part(4, "sample", 1), record, [row(1.0, run="other"), row(0.9), row(1.0, reasons=("open",))]),
    ]
    outcome = score(parts, RUN)
    assert [group.is_over for group in parts] == [True, True, True, False]
    assert (outcome.counted, outcome.left_out, outcome.greedy) == (5, 3, 0.5)
    assert outcome.pass_at == {"1": pytest.approx(0.25), "2": 1.0}
    assert outcome.figure == 0.5
    assert score(parts[:1], RUN).figure is None, "one of eight is too little"


def test_a_failed_episode_solves_nothing():
    """Not even where a return of 0 is a solution."""
    failed = row(None, reasons=("failed_without_outcome", "no_trainable_call"))
    rows = [failed, row(0.0)]
    sampled = replace(part(4, "sample", 0), solved=0.0)
    record = GroupRecord(group_id="g", declared=True, ready=False)
    assert score([EvaluatedGroup(sampled, record, rows)], RUN).pass_at["1"] == 0.5


def test_a_greedy_episode_that_failed_is_worth_nothing():
    """Whatever it earned on the way, as for `claw agents eval`."""
    failed = row(0.7, reasons=("failed_without_outcome",))
    record = GroupRecord(group_id="g", declared=True, ready=False)
    tasks = [part(4, "greedy", number, samples=0) for number in range(2)]
    parts = [EvaluatedGroup(task, record, [each]) for task, each in zip(tasks, (failed, row(1.0)), strict=True)]
    assert score(parts, RUN).greedy == 0.5


def test_a_run_is_evaluated_and_keeps_its_best_version(tmp_path, model_dir):
    """Versions 0, 2 and 4: the best is kept when later exports displace its own, and a resumed run says nothing twice."""
    chosen = settings(tmp_path, model_dir, batches_max=4, hf_every=1, hf_kept=1, evaluation_wait_s=5.0)
    scores = {0: [0.0, 0.0], 2: [1.0, 1.0], 4: [0.0, 1.0]}
    arrives = []

    def reached(milestone):
        if milestone in (Milestone.STARTED, Milestone.PUBLISHED):
            version = len(arrives)
            arrives.append(version)
            if version in scores:
                history = evaluation(version, scores[version], [[1.0, 0.0, 0.0], [0.0] * SAMPLES])
                apply_to(collaborators.pool, log, history)

    log, collaborators = world_of(chosen, random_groups(8, 4), reached)
    assert TrainingRun(chosen, collaborators).run() == "finished"
    said = events(log, VersionEvaluated)
    assert [(e.version, e.greedy, e.best) for e in said] == [(0, 0.0, True), (2, 1.0, True), (4, 0.5, False)]
    assert all((e.trajectories, e.left_out) == (8, 0) for e in said)
    assert said[0].pass_at == {"1": pytest.approx(1 / 6), "2": pytest.approx(1 / 3)}
    best = Path(urlsplit(said[1].checkpoint_uri).path)
    assert [path.name for path in (tmp_path / "hf").glob("best-*")] == [best.name]
    assert best.name.startswith("best-00000002-")
    assert (best / "model.safetensors").stat().st_size > 0
    assert not list((tmp_path / "hf").glob("00000002-*")), "its own export was dropped by age"
    assert not [record for record in collaborators.pool.groups() if record.channel == "val"], "memory is bounded"


def test_training_waits_for_the_evaluation_of_its_version_and_not_for_ever(tmp_path, model_dir):
    """It is trained only after the last group of it is over; one that never ends is given up after evaluation_wait_s."""
    chosen = settings(tmp_path, model_dir, batches_max=1, evaluation_wait_s=30.0)
    whole = evaluation(0, [1.0, 1.0], [[1.0] * SAMPLES] * 2)
    opened = [event for event in whole if type(event).__name__ == "GroupOpened"]
    log, collaborators = world_of(chosen, [*random_groups(2, 4), *opened])
    run = threading.Thread(target=TrainingRun(chosen, collaborators).run)
    run.start()
    run.join(1.5)
    assert run.is_alive()
    assert not events(log, BatchTrained)
    apply_to(collaborators.pool, log, whole)
    run.join(30)
    assert [e.version for e in events(log, VersionEvaluated)] == [0]
    assert len(events(log, BatchTrained)) == 1

    impatient = settings(tmp_path / "impatient", model_dir, batches_max=1, evaluation_wait_s=0.2)
    log, collaborators = world_of(impatient, [*random_groups(2, 4), *opened])
    assert TrainingRun(impatient, collaborators).run() == "finished"
    assert [(e.trajectories, e.left_out, e.best) for e in events(log, VersionEvaluated)] == [(0, 8, False)]


def test_an_episode_that_nobody_judged_is_left_out():
    """It is no 0: neither in the mean nor among the samples; too many of them, and there is no figure."""
    record = GroupRecord(group_id="g", declared=True, ready=False)
    parts = [EvaluatedGroup(part(4, "greedy", 0, 1, 2), record, [row(None)])]
    parts.append(EvaluatedGroup(part(4, "sample", 0, 1, 2), record, [row(1.0), row(None)]))
    outcome = score(parts, RUN)
    assert (outcome.counted, outcome.left_out, outcome.greedy, outcome.pass_at) == (1, 2, None, {"1": 1.0})
    assert outcome.figure is None


JUDGED_LATER = SPEC.model_copy(update={"rewards_required": ("judge/style",)})
STYLE = {"source": "judge", "name": "style", "revision": 17}
SAID = facts.reward("e", "t0", 0.5, verdict=facts.verdict(), **STYLE)
SAID_NOTHING = facts.reward("e", "t0", None, verdict=facts.verdict(), **STYLE)


@pytest.mark.parametrize(
    ("spec", "outcome", "later", "says"),
    [
        (SPEC, None, [SAID], (1, 0, 0.5, True)),
        (SPEC, None, [SAID_NOTHING], (0, 1, None, False)),
        (SPEC, None, [facts.gave_up("e", "t0")], (0, 1, None, False)),
        (JUDGED_LATER, 1.0, [SAID], (1, 0, 1.5, True)),
        (JUDGED_LATER, 1.0, [facts.gave_up("e", "t0")], (1, 0, 1.0, True)),
        (SPEC, None, [facts.gave_up("e", "t0", call_id=f"c{n}") for n in range(2)], (0, 1, None, False)),
    ],
)
def test_an_evaluation_is_concluded_once_it_is_judged(tmp_path, spec, outcome, later, says):
    """Verdicts come after the episode: before the last one that the spec requires nothing is said, and training goes on."""
    tags = part(4, "greedy", 0, tasks=1, samples=0).tags()
    history = group("e", [outcome], version=4, channel="val", tags=tags, temperature=0.0)
    played = pooled(history)
    (tmp_path / "00000004-export").mkdir()
    evaluations, committed = watching(tmp_path, played.pool, 4, spec=spec)
    evaluations.look()
    assert not committed
    apply_to(played.pool, played.log, [*history, *later])
    evaluations.look()
    assert [(e.trajectories, e.left_out, e.greedy, e.best) for e in committed] == [says]


class PlayedWhileWaiting:
    """A clock that stands for the trainer's wait: it looks each 25 s, and after so many looks one more fact has arrived."""

    def __init__(self, facts, looks):
        self.pool, self.now_s, self._looks, self._looked = ReadRows(), 0.0, looks, -1
        log, self._arriving = MemoryLog(LogSettings(partitions=2)), []

        def append(item):
            self._arriving.append([])
            return log.append([item])[0]

        for row in rows_of(facts, append):
            self._arriving[-1].append(row)
        self.wait(0)

    @property
    def left(self):
        """Facts that have not arrived."""
        return len(self._arriving)

    def wait(self, _):
        """As `threading.Event.wait`."""
        self.now_s, self._looked = self.now_s + 25.0, self._looked + 1
        for _, topic, key, value in self._arriving.pop(0) if self._looked % self._looks == 0 else ():
            self.pool.apply(topic, key, value)


@pytest.mark.parametrize(("looks", "counted"), [(2, [1]), (4, [])])
def test_an_evaluation_whose_episodes_play_is_waited_for(tmp_path, looks, counted):
    """An episode of ten calls, each within `evaluation_wait_s`, takes several times as long in all, and is part of the
    evaluation; a call beyond it is not waited for."""
    tags = part(0, "greedy", 0, tasks=1, samples=0).tags()
    ids = [[5 + number] for number in range(10)]
    played = group("e", [1.0], channel="val", tags=tags, temperature=0.0, ids=ids)
    for number, fact in enumerate(played):
        fact = structs.replace(fact, envelope=structs.replace(fact.envelope, occurred_at_us=number))
        played[number] = fact
    playing, metrics = PlayedWhileWaiting(played, looks), TrainerMetrics()
    (tmp_path / "00000000-export").mkdir()
    evaluations, committed = watching(
        tmp_path, playing.pool, 0, clock=lambda: playing.now_s, stop=playing, metrics=metrics, evaluation_wait_s=60.0
    )
    evaluations.look()
    assert [event.trajectories for event in committed] == counted
    assert metrics.registry.get_sample_value("claw_trainer_evaluations_given_up_total") == (0 if counted else 1)


def test_a_quiet_evaluation_is_concluded_with_what_there_is(tmp_path):
    """After `evaluation_quiet_s`, however many versions the run has gone on."""
    (opened, *_) = group("e", [1.0], channel="val", tags=part(0, "greedy", 0, tasks=1, samples=0).tags())
    clock = [0.0]
    evaluations, committed = watching(
        tmp_path, pooled([opened]).pool, 3, clock=lambda: clock[0], evaluation_wait_s=0, evaluation_quiet_s=1000
    )
    for now_s, events_committed in ((0.0, 0), (999.0, 0), (1001.0, 1)):
        clock[0] = now_s
        evaluations.look()
        assert len(committed) == events_committed


@pytest.mark.parametrize(("looks", "greedy"), [(2, 0.5), (4, None)])
def test_the_end_of_a_run_waits_for_verdicts_and_not_for_ever(tmp_path, looks, greedy):
    """The last verdict comes within `evaluation_wait_s` of the fact before it, or the episode is left out."""
    tags = part(2, "greedy", 0, tasks=1, samples=0).tags()
    played = group("e", [None], version=2, channel="val", tags=tags, temperature=0.0)
    judged = PlayedWhileWaiting([*played, structs.replace(SAID, envelope=facts.envelope("late", at_us=1))], looks)
    while judged.left > 1:
        judged.wait(0)
    evaluations, committed = watching(
        tmp_path, judged.pool, 3, clock=lambda: judged.now_s, stop=judged, evaluation_wait_s=60.0
    )
    evaluations.conclude_all()
    assert [event.greedy for event in committed] == [greedy]


@pytest.mark.parametrize("numbers", [{"every": 0}, {"version": 2**63}])
def test_a_group_with_impossible_tags_is_none_of_an_evaluation(tmp_path, numbers):
    """Whoever may open groups chooses their tags: such a group ends no trainer, and nothing is said of it."""
    task = replace(part(3, "greedy", 0, tasks=1, samples=0), **numbers)
    played = group("e", [1.0], version=3, channel="val", tags=task.tags(), temperature=0.0)
    evaluations, committed = watching(tmp_path, pooled(played).pool, 4)
    evaluations.look()
    assert not committed


def test_what_an_earlier_incarnation_concluded_is_forgotten_and_still_the_best(tmp_path):
    """Nothing is committed twice; a version that is not better than the best of history is not best."""
    history = [*evaluation(0, [1.0, 1.0], [[1.0] * SAMPLES] * 2), *evaluation(2, [0.5, 0.5], [[0.0] * SAMPLES] * 2)]
    history += group("foreign", [1.0], run="other", channel="val", tags=part(2, "greedy", 0, tasks=1, samples=0).tags())
    pool = pooled(history).pool
    earlier = VersionEvaluated(envelope=None, run_id=RUN, version=0, trajectories=8, greedy=1.0, best=True)
    evaluations, committed = watching(tmp_path, pool, 3, evaluated=[earlier])
    evaluations.look()
    assert [(event.version, event.best) for event in committed] == [(2, False)]
    assert [record.group_id for record in pool.groups()] == ["foreign"], (
        "another run's, which a view does not even keep"
    )


def test_nothing_is_a_figure_too(tmp_path):
    """Returns may be negative: after a restart a best version that earned 0 is still better than one that lost."""
    worth = [
        VersionEvaluated(envelope=None, run_id=RUN, version=n, trajectories=8, greedy=g, best=True)
        for n, g in ((0, -1.0), (1, 0.0))
    ]
    resumed, _ = watching(tmp_path, pooled([]).pool, 2, evaluated=worth)
    assert resumed._best == {False: (0.0, 1)}


def test_the_best_of_held_out_tasks_need_not_beat_figures_of_trained_ones(tmp_path):
    """Whose tasks are held out says so, and is compared with its like; the best of trained tasks is no bar for it."""
    played = []
    for version, held_out, values in ((2, False, [1.0]), (4, True, [0.5]), (6, True, [0.25])):
        task = replace(part(version, "greedy", 0, tasks=1, samples=0), held_out=held_out)
        played += group(f"e{version}", values, version=version, channel="val", tags=task.tags(), temperature=0.0)
    evaluations, committed = watching(tmp_path, pooled(played).pool, 7)
    evaluations.look()
    said = [(event.version, event.held_out, event.best) for event in committed]
    assert said == [(2, False, True), (4, True, True), (6, True, False)]


def test_a_version_whose_verdicts_come_late_does_not_outdo_a_later_one_as_good(tmp_path):
    """Training went on meanwhile; the run's record names the version whose export is kept."""
    pool, log = ReadRows(), MemoryLog(LogSettings(partitions=2))
    evaluations, committed = watching(tmp_path, pool, 9)
    for version, value in ((4, None), (8, 0.5), (4, 0.5), (6, None), (6, 0.75)):
        (tmp_path / f"{version:08d}-export").mkdir(exist_ok=True)
        task = part(version, "greedy", 0, tasks=1, samples=0)
        apply_to(pool, log, group(f"e{version}", [value], version=version, channel="val", tags=task.tags()))
        evaluations.look()
    assert [(event.version, event.best) for event in committed] == [(8, True), (4, False), (6, True)]
    run = Run(RUN)
    for event in committed:
        run.take(event)
    assert run.best.version == 6
    assert [path.name for path in tmp_path.glob("best-*")] == ["best-00000006-export"]


def test_an_evaluation_waits_for_no_reward_that_batches_do_not_wait_for(tmp_path):
    """By `reward_missing: reject` what has not come is final."""
    spec = JUDGED_LATER.model_copy(update={"reward_missing": "reject"})
    tags = part(4, "greedy", 0, tasks=1, samples=0).tags()
    played = pooled(group("e", [1.0], version=4, channel="val", tags=tags, temperature=0.0))
    (tmp_path / "00000004-export").mkdir()
    evaluations, committed = watching(tmp_path, played.pool, 4, spec=spec)
    evaluations.look()
    assert [event.greedy for event in committed] == [1.0]


@pytest.mark.parametrize("resumed", [False, True])
def test_the_best_of_held_out_tasks_is_outdone_by_none_of_trained_ones(tmp_path, resumed):
    """A runner that was started again without `--eval-tasks`: the export of the best version stays, whoever remembers it."""
    pool, log, history, evaluated = ReadRows(), MemoryLog(LogSettings(partitions=2)), [], []
    evaluations, committed = watching(tmp_path, pool, 7)
    for version, held_out, value in ((2, False, 0.5), (4, True, 0.5), (6, False, 1.0)):
        (tmp_path / f"{version:08d}-export").mkdir()
        task = replace(part(version, "greedy", 0, tasks=1, samples=0), held_out=held_out)
        apply_to(pool, log, group(f"e{version}", [value], version=version, channel="val", tags=task.tags()))
        evaluated += committed
        if resumed:
            evaluations, committed = watching(tmp_path, pool, 7, evaluated=evaluated)
        evaluations.look()
        history.append((committed[-1].best, [path.name for path in tmp_path.glob("best-*")]))
    held_out_best = ["best-00000004-export"]
    assert history == [(True, ["best-00000002-export"]), (True, held_out_best), (False, held_out_best)]


def test_the_trainer_takes_in_its_own_evaluations_and_no_other_group_of_that_channel():
    """What it would never look at would stay in memory for ever."""
    tags = part(0, "greedy", 0).tags()

    def concerns(channel, tags, run_id=RUN, reasons=(), *, declared=True):
        row = GroupRecord(
            group_id="g", declared=declared, ready=True, channel=channel, tags=tags, run_id=run_id, reasons=reasons
        )
        return may_concern(row, RUN)

    assert concerns("val", tags)
    assert not concerns("val", ())
    assert not concerns("val", tags, "other")
    assert concerns("train", ())
    assert not concerns("", (), None, ("evicted",)), "a stub of a group that was anybody's"
    assert concerns("val", (), None, declared=False), "its tags and its run are still to come"
    assert not concerns("val", (), None, ("evicted",), declared=False)


@pytest.mark.parametrize("calls_run", [RUN, "other", None])
def test_an_evaluation_whose_openings_come_last_is_seen_whole(calls_run):
    """Another gateway's spool had them: a view that had forgotten the groups for what their calls alone say would never see them."""
    task = part(0, "greedy", 0, 1, 0)
    opening, *played, completed = group("e0", [1.0], version=0, channel="val", tags=task.tags())
    played = [
        structs.replace(call, channel="val", envelope=facts.envelope(call.call_id, run_id=calls_run)) for call in played
    ]
    log = MemoryLog(LogSettings(partitions=1))
    state = PartitionState(0, 1)
    for offset, fact in enumerate([*played, completed, opening]):
        state.apply(Record("claw.calls", 0, offset, 0, group_key("e0"), encode(fact)))
        log.append([row for row in state.take_batch(0) if row.topic in TOPICS])
    keep = partial(may_concern, run_id=RUN)
    view = PoolView(log.settings, keep=keep, run=RUN, open_reader=lambda: log.reader(TOPICS))
    view.start()
    try:
        view.wait_caught_up(10)
        (seen,) = view.groups()
        assert (seen.run_id, EvaluatedTask.of(seen.tags), len(view.trajectories(seen))) == (RUN, task, 1)
    finally:
        view.stop()
