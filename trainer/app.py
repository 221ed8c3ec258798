"""The composition root of the trainer: the real engine, log, pool and transfer server around `TrainingRun`."""

import os
import socket
import threading
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from inspect import getsource
from pathlib import Path

import structlog
import torch

from claw_r1.datapool.fold.readiness import is_evicted
from claw_r1.datapool.view.planned_rows import FactSource
from claw_r1.datapool.view.rows import KeepGroup
from claw_r1.datapool.view.view import PoolView
from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.kafka.reader import FactLookup, LogReader
from claw_r1.eventlog.records import Record
from claw_r1.runtime.monitoring.registry import watch_disk
from claw_r1.runtime.monitoring.server import monitored
from claw_r1.runtime.monitoring.tracing import traced
from claw_r1.runtime.processes import child
from claw_r1.runtime.tls.pem import weights_files
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.evaluation import EvaluatedTask
from claw_r1.schemas.events import GroupRecord
from claw_r1.schemas.http import Channel
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import WORKERS
from claw_r1.trainer.dependencies import LivePool, TrainerDependencies
from claw_r1.trainer.journal.journal import kafka_history, kafka_journal
from claw_r1.trainer.learn.learner import Learner
from claw_r1.trainer.metrics import TrainerMetrics
from claw_r1.trainer.offline.dataset import OfflineDataset
from claw_r1.trainer.offline.journal import file_journal
from claw_r1.trainer.offline.samples import AnybodysSamples, is_sample, unaged
from claw_r1.trainer.plan.chat_template import ChatTemplate
from claw_r1.trainer.ranks.launch import ALONE, Launched
from claw_r1.trainer.ranks.leader import LedLearner, leading
from claw_r1.trainer.replay_batch import check_planned, replay
from claw_r1.trainer.run import RunEnding, TrainingRun
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.trainer.versions import live_workers
from claw_r1.weights.carry.carrier_handle import CARRIER, carried_by
from claw_r1.weights.carry.carrying import Carried, Carrying
from claw_r1.weights.device import resolved
from claw_r1.weights.host_copies import shared_directory
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.transfer_server import Sent, TransferServer

log = structlog.get_logger()


def train(settings: TrainerSettings, stop: threading.Event, ranks: Launched = ALONE) -> JsonDict:
    """Run to the end, or until `stop` is set. Raises TrainerError, LogError, OSError (offer_port in use)."""
    with ExitStack() as resources:
        metrics = _metrics(settings, resources, stop)
        learner = _learner(settings, resources, stop, ranks)
        files = weights_files()
        transfer_server = TransferServer(
            settings.offer_host,
            settings.offer_port,
            advertise_host=settings.offer_advertise,
            on_sent=_log_sent,
            tls=files.context(server=True) if files else None,
            carrying=_carrying(settings),
        )
        resources.callback(transfer_server.close)
        dependencies = TrainerDependencies(
            learner=learner,
            pool=_pool(
                settings,
                lambda group: may_concern(group, settings.run_id, settings.spec.policy),
                resources,
                _own_run(settings),
                _role(settings),
            ),
            facts=_facts(settings, resources),
            journal=kafka_journal(settings.log_settings(), settings.run_id, settings.model_id),
            transfer_server=transfer_server,
            stop=stop,
            producer=_producer(),
            render=ChatTemplate(settings.model_dir),
            copies=shared_directory(),
            metrics=metrics,
        )
        resources.callback(dependencies.journal.close)
        run = TrainingRun(settings, dependencies)
        ending = run.run()
        if ending == "finished" and settings.linger_s:
            _linger(settings, run.version, stop)
        return _answer(ending, run)


def train_offline(settings: TrainerSettings, source: str, stop: threading.Event, ranks: Launched = ALONE) -> JsonDict:
    """The same on the content of the pool, or of a dataset, until it is used up. source: `pool` or a directory."""
    settings = unaged(settings)
    with ExitStack() as resources:
        metrics = _metrics(settings, resources, stop)
        samples: LivePool
        facts: FactSource
        if source == "pool":
            samples = AnybodysSamples(_pool(settings, is_sample, resources), settings.run_id)
            facts = _facts(settings, resources)
        else:
            samples = facts = OfflineDataset(Path(source), settings.run_id, settings.spec)
        dependencies = TrainerDependencies(
            learner=_learner(settings, resources, stop, ranks),
            pool=samples,
            facts=facts,
            journal=file_journal(settings.out_dir / "journal", settings.run_id),
            transfer_server=NoWeightServer(),
            stop=stop,
            producer=_producer(),
            render=ChatTemplate(settings.model_dir),
            pool_grows=False,
            metrics=metrics,
        )
        resources.callback(dependencies.journal.close)
        run = TrainingRun(settings, dependencies)
        return _answer(run.run(), run)


def _metrics(settings: TrainerSettings, resources: ExitStack, stop: threading.Event) -> TrainerMetrics:
    """A finished run stays until a watcher has seen its end, as otherwise it would look like a dead one; or until it is told
    to stop."""
    metrics = TrainerMetrics()
    watch_disk(metrics.registry, out_dir=settings.out_dir)
    resources.enter_context(traced("trainer"))
    watchers = resources.enter_context(
        monitored(metrics.registry, settings.metrics_host, settings.metrics_port, metrics.not_ready)
    )

    def leave() -> None:
        if metrics.phase == "ended" and settings.stay_when_over:
            stop.wait()
        elif metrics.phase == "ended":
            watchers.wait_for_one(stop)

    resources.callback(leave)
    return metrics


def _answer(ending: RunEnding, run: TrainingRun) -> JsonDict:
    return {"ending": ending, **run.standing, **({"why_over": run.why_over} if run.why_over else {})}


def replay_batch(settings: TrainerSettings, sequence: int, stop: threading.Event, ranks: Launched = ALONE) -> JsonDict:
    """One planned batch again, see `claw_r1.trainer.replay_batch`. Raises TrainerError, LogError."""
    with ExitStack() as resources:
        history = kafka_history(settings.log_settings(), settings.run_id, settings.model_id)
        check_planned(sequence, history, settings.run_id)
        facts = _facts(settings, resources)
        learner = _learner(settings, resources, stop, ranks)
        return replay(settings, sequence, history=history, facts=facts, learner=learner, stop=stop)


def _learner(
    settings: TrainerSettings, resources: ExitStack, stop: threading.Event, ranks: Launched
) -> Learner | LedLearner:
    return resources.enter_context(leading(settings, ranks, stop))


def _pool(
    settings: TrainerSettings,
    keep: KeepGroup,
    resources: ExitStack,
    run: str | None = None,
    role: str | None = None,
) -> PoolView:
    pool = PoolView(settings.log_settings(), keep=keep, run=run, role=role)
    resources.callback(pool.stop)
    pool.start()
    return pool


def _facts(settings: TrainerSettings, resources: ExitStack) -> FactLookup:
    facts = FactLookup(settings.log_settings())
    resources.callback(facts.close)
    return facts


def _producer() -> str:
    return f"trainer/{socket.gethostname()}-{os.getpid()}"


class NoWeightServer:
    """A `WeightServer` for a run whose weights no worker requests."""

    url = ""

    def stage(self, run_id: str, version: int, snapshot: WeightsSnapshot) -> None:
        """Nothing to stage."""

    def settle(self, run_id: str, version: int) -> None:
        """Nothing to let go."""


def may_concern(group: GroupRecord, run_id: str, policy: str = "own") -> bool:
    """Returns whether the run may ever look at a group: the view forgets others for good, so only what stays true may
    decide. A group's run and tags are those of its opening, which may come after its calls."""
    if is_evicted(group):
        return False
    if not group.declared:
        return True
    if group.channel == Channel.VALIDATION:
        return group.run_id == run_id and EvaluatedTask.of(group.tags) is not None
    return policy == "any" or group.run_id in (None, run_id)


def _own_run(settings: TrainerSettings) -> str | None:
    """The only run whose groups are taken in, besides those of none; None: all are."""
    return None if settings.spec.policy == "any" else settings.run_id


def _role(settings: TrainerSettings) -> str:
    """Names what the view of this run keeps: by another policy, or other code, it would be something else."""
    kept_by = (settings.run_id, settings.spec.policy, getsource(may_concern))
    return f"trainer-{sha256(chr(0).join(kept_by).encode()).hexdigest()[:12]}."


def _log_sent(sent: Sent) -> None:
    write = log.warning if sent.error else log.info
    mb, seconds = round(sent.bytes_total / 1e6, 3), round(sent.seconds, 3)
    write("weights_sent", worker=sent.worker_id, version=sent.version, mb=mb, seconds=seconds, error=sent.error)


def _carrying(settings: TrainerSettings) -> Carrying | None:
    """None where versions go by http alone."""
    sees_cuda = torch.cuda.is_available
    transports = carried_by(settings.offer_transports, lambda: resolved(settings.device, sees_cuda=sees_cuda) == "cpu")
    spawn = partial(child.start_spoken_to, CARRIER)
    return Carrying(transports, spawn, on_carried=_log_carried) if transports else None


def _log_carried(carried: Carried) -> None:
    write, seconds = log.warning if carried.error else log.info, round(carried.seconds, 3)
    how = {"transport": carried.transport, "version": carried.version, "workers": carried.workers}
    write("weights_carried", **how, seconds=seconds, error=carried.error)


def _linger(settings: TrainerSettings, version: int, stop: threading.Event) -> None:
    """Serve the final weights until every live worker of the model reports them. The run is over either way."""
    reports: dict[bytes | None, Record] = {}

    def behind() -> list[str]:
        latest = list(reports.values())
        return live_workers.behind(latest, settings.model_id, settings.run_id, version, now_us() // 1000)

    try:
        reader = LogReader(settings.log_settings(), [WORKERS])
        follower = Follower(reader, lambda record: reports.update({record.key: record}))
        follower.start()
        try:
            follower.wait_caught_up(settings.linger_s)
            lagging = live_workers.wait_for_all(behind, settings.linger_s, stop)
        finally:
            follower.stop()
    except LogError as error:
        log.warning("workers_unknown_at_the_end", error=str(error))
        return
    if lagging:
        log.warning("workers_behind_at_the_end", workers=lagging, version=version)
