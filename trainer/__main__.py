"""`python -m claw_r1.trainer --config F`: train a run to its end, or resume it.

Exit status: 0 the run is over, or was asked to stop and can be resumed; 1 a rank was lost; 2 it could not go on (one line
says why), or a replay was stopped; 3 the run was over before, and these settings continue nothing. Nothing here starts it again:
the supervisor of a stack does (`claw demo`, `claw up`), or Kubernetes.
"""

import json
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager
from threading import Event
from typing import Any

import yaml

from claw_r1.runtime.modules import needs_extra
from claw_r1.trainer import settings
from claw_r1.trainer.errors import RUN_WAS_OVER, TrainerError
from claw_r1.trainer.ranks import place
from claw_r1.trainer.ranks.launch import Launched, launched, this_command

Ranks = AbstractContextManager[Launched]


@needs_extra("trainer")
def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status of the command."""
    try:
        return _run(*settings.read(arguments), this_command(arguments))
    except TrainerError as error:
        return _refuse(error)


def _run(chosen: settings.TrainerSettings, flags: Namespace, command: Sequence[str]) -> int:
    from claw_r1.datapool.errors import PoolError
    from claw_r1.eventlog.errors import Fenced, LogError
    from claw_r1.trainer import signals
    from claw_r1.trainer.config import directories, extras, offer
    from claw_r1.trainer.learn import deepspeed_config

    extras.check(chosen)
    directories.check(chosen)
    if flags.offline is None and flags.replay_batch is None:  # nobody fetches the weights of these
        offer.check(chosen)
    deepspeed_config.check(chosen)
    _configure_logs()
    own = place.of(os.environ, chosen.ranks)
    chosen = chosen if own is None else chosen.model_copy(update={"ranks": own.size})
    if own is not None and own.rank:
        from claw_r1.trainer.ranks.follower import follow

        return 0 if flags.dry_run else follow(chosen, own)
    try:
        with signals.as_flag(chosen.stop_timeout_s) as stop:
            answer = _execute(chosen, flags, stop, launched(own, chosen.ranks, command))
    except Fenced:
        return _refuse(f"run {chosen.run_id} was taken over by another trainer; this one stops")
    except (LogError, PoolError, OSError) as error:
        return _refuse(error)
    if flags.json:
        print(json.dumps(answer))
    elif flags.dry_run or flags.replay_batch is not None:
        print(yaml.safe_dump(answer, sort_keys=False), end="")
    if (why := answer.get("why_over")) is not None:
        print(f"trainer: {why}", file=sys.stderr)
        return RUN_WAS_OVER
    return 0


def _execute(chosen: settings.TrainerSettings, flags: Namespace, stop: Event, start: Ranks) -> dict[str, Any]:  # JSON
    """Does the work of the flags, and returns its result. Torch is imported once a broker answered: whoever mistyped an
    address waits for nothing."""
    from claw_r1.eventlog.kafka.admin import check_catalogue

    if flags.dry_run:
        from claw_r1.trainer.plan.dry_run import dry_run

        return dry_run(chosen)
    if flags.offline in (None, "pool"):
        check_catalogue(chosen.log_settings(), "trainer")
    with start as ranks:
        from claw_r1.trainer import app

        if flags.replay_batch is not None:
            return app.replay_batch(chosen, flags.replay_batch, stop, ranks)
        if flags.offline is not None:
            return app.train_offline(chosen, flags.offline, stop, ranks)
        return app.train(chosen, stop, ranks)


def _refuse(error: object) -> int:
    print(f"trainer: {error}", file=sys.stderr)
    return 2


def _configure_logs() -> None:
    from claw_r1.runtime.logs import log_to_stderr

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    log_to_stderr()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)


def _leave(status: int) -> None:
    """The end of the process. All is closed; a thread that still stands in torch's store would abort the interpreter's own end."""
    if "torch.distributed" in sys.modules:
        from claw_r1.runtime.logs import drain_logs

        drain_logs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    _leave(main())
