"""`python -m trainer --config F`: train a run to its end, or resume it.

Exit status: 0 the run is over, or was asked to stop and can be resumed; 2 it could not go on (one line says why).
"""

import logging
import os
import sys
from collections.abc import Sequence

from trainer import settings
from trainer.errors import TrainerError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status of the command."""
    try:
        return _run(settings.load(arguments))
    except TrainerError as error:
        return _refuse(error)


def _run(chosen: settings.TrainerSettings) -> int:
    from datapool.errors import PoolError
    from eventlog.errors import Fenced, LogError
    from eventlog.kafka.admin import check_catalogue
    from trainer import signals
    from trainer.learn import deepspeed_config
    from trainer.sections import directories

    directories.check(chosen)
    deepspeed_config.check(chosen)
    _configure_logs()
    try:
        # Before torch is imported: whoever mistyped an address waits for nothing.
        check_catalogue(chosen.log_settings())
        with signals.as_flag(chosen.stop_timeout_s) as stop:
            from trainer.app import train

            train(chosen, stop)
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
