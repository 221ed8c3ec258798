"""`python -m trainer --config F`: train a run to its end, or resume it.

Exit status: 0 the run is over, or was asked to stop and can be resumed; 2 it could not go on (one line says why).
"""

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from trainer import settings
from trainer.errors import TrainerError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status of the command."""
    try:
        return _run(settings.load(arguments), arguments)
    except TrainerError as error:
        return _refuse(error)


def _run(chosen: settings.TrainerSettings, arguments: Sequence[str] | None) -> int:
    from datapool.errors import PoolError
    from eventlog.errors import Fenced, LogError
    from eventlog.kafka.admin import check_catalogue
    from trainer import signals
    from trainer.ranks import place
    from trainer.ranks.launch import Launched, launched, this_command
    from trainer.sections import directories

    directories.check(chosen)
    _configure_logs()
    own = place.of(os.environ, chosen.ranks)
    chosen = chosen if own is None else chosen.model_copy(update={"ranks": own.size})
    if own is not None and own.rank:
        from trainer.ranks.follower import follow

        return follow(chosen, own)
    try:
        # Before torch is imported: whoever mistyped an address waits for nothing.
        check_catalogue(chosen.log_settings())
        start = launched(chosen.ranks, this_command(arguments)) if own is None else nullcontext(Launched(own))
        with start as ranks, signals.as_flag(chosen.stop_timeout_s) as stop:
            from trainer.app import train

            train(chosen, stop, ranks)
    except Fenced:
        return _refuse(f"run {chosen.run_id} was taken over by another trainer; this one stops")
    except (LogError, PoolError, OSError) as error:
        return _refuse(error)
    return 0


def _refuse(error: object) -> int:
    print(f"trainer: {error}", file=sys.stderr)
    return 2


def _configure_logs() -> None:
    from schemas.runtime.logs import log_to_stderr

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    log_to_stderr()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
