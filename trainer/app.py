"""The composition root of the trainer: the real engine, log, pool and transfer server around `TrainingRun`."""

import os
import socket
import threading
from contextlib import ExitStack

import structlog
from transformers.utils.logging import disable_progress_bar

from datapool.view.view import PoolView
from eventlog.errors import LogError
from eventlog.kafka.reader import FactLookup
from eventlog.view import CompactedView
from schemas.envelopes import now_us
from schemas.evaluation import EvaluatedTask
from schemas.events import GroupRecord
from schemas.http import Channel
from schemas.topics import WORKERS
from trainer import live_workers
from trainer.dependencies import TrainerDependencies
from trainer.learn.learner import Learner
from trainer.plan.journal import kafka_journal
from trainer.ranks.launch import Launched
from trainer.ranks.leader import LedLearner, leading
from trainer.run import Ending, TrainingRun
from trainer.settings import TrainerSettings
from weights.sender import Sent
from weights.transfer_server import TransferServer

log = structlog.get_logger()


def train(settings: TrainerSettings, stop: threading.Event, ranks: Launched) -> Ending:
    """Run to the end, or until `stop` is set. Raises TrainerError, LogError, OSError (offer_port in use)."""
    log_settings = settings.log_settings()
    disable_progress_bar()
    with ExitStack() as resources:
        learner = resources.enter_context(leading(settings, ranks, stop))
        transfer_server = _transfer_server(settings, learner)
        resources.callback(transfer_server.close)
        # Without tokens: a trainer reads them from the facts (trainer/plan/facts.py).
        pool = PoolView(log_settings, keep=lambda group: may_concern(group, settings.run_id), tokens=False)
        resources.callback(pool.stop)
        pool.start()
        journal = kafka_journal(log_settings, settings.run_id, settings.model_id)
        resources.callback(journal.close)
        facts = FactLookup(log_settings)
        resources.callback(facts.close)
        dependencies = TrainerDependencies(
            learner=learner,
            pool=pool,
            facts=facts,
            journal=journal,
            transfer_server=transfer_server,
            stop=stop,
            producer=f"trainer/{socket.gethostname()}-{os.getpid()}",
        )
        run = TrainingRun(settings, dependencies)
        ending = run.run()
        if ending == "finished" and settings.linger_s:
            _linger(settings, run.version, stop)
        return ending


def may_concern(group: GroupRecord, run_id: str) -> bool:
    """Whether the run may ever look at a group: the view forgets others for good, so only what stays true may decide."""
    if group.channel == Channel.VALIDATION:
        return group.run_id == run_id and EvaluatedTask.of(group.tags) is not None
    return group.run_id in (None, run_id)


def _transfer_server(settings: TrainerSettings, learner: Learner | LedLearner) -> TransferServer:
    return TransferServer(
        settings.offer_host,
        settings.offer_port,
        advertise_host=settings.offer_advertise,
        device=str(learner.device),
        timeout_s=settings.offer_timeout_s,
        on_sent=_log_sent,
    )


def _log_sent(sent: Sent) -> None:
    write = log.warning if sent.error else log.info
    write("weights_sent", worker=sent.worker_id, version=sent.version, seconds=round(sent.seconds, 3), error=sent.error)


def _linger(settings: TrainerSettings, version: int, stop: threading.Event) -> None:
    """Serve the final weights until every live worker of the model reports them. The run is over either way."""
    view = CompactedView(settings.log_settings(), [WORKERS])
    try:
        view.start()
        view.wait_caught_up(settings.linger_s)
        lagging = live_workers.wait_for_all(lambda: _behind(view, settings, version), settings.linger_s, stop)
        if lagging:
            log.warning("workers_behind_at_the_end", workers=lagging, version=version)
    except LogError as error:
        log.warning("workers_unknown_at_the_end", error=str(error))
    finally:
        view.stop()


def _behind(view: CompactedView, settings: TrainerSettings, version: int) -> list[str]:
    reports = (record for _, record in view.items(WORKERS))
    return live_workers.behind(reports, settings.model_id, settings.run_id, version, now_us() // 1000)
