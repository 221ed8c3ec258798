"""`python -m trainer --config F`: train a run to its end, or resume it.

Exit status: 0 the run is over, or was asked to stop and can be resumed; 2 it could not go on (one line says why).
"""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Any

from trainer.errors import TrainerError


def main(arguments: list[str] | None = None) -> int:
    """Exit status of the command."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="YAML or JSON file with fields of TrainerSettings")
    parser.add_argument("--learning-rate", type=float, default=None, help="instead of the file's; 0 is the control")
    parser.add_argument("--run-id", default=None, help="instead of the file's; the id of an earlier run resumes it")
    options = parser.parse_args(arguments)
    flags = {name: getattr(options, name) for name in ("learning_rate", "run_id") if getattr(options, name) is not None}
    try:
        return _run(options.config, flags)
    except TrainerError as error:
        return _refused(error)


def _run(config: Path, flags: dict[str, Any]) -> int:  # Any: values of any field
    from eventlog.errors import Fenced, LogError
    from trainer import settings, signals
    from trainer.learn import model

    chosen = settings.load(config, flags)
    model.check(chosen.model_dir)
    _configure_logs()
    from datapool.errors import PoolError
    from eventlog.kafka.admin import check_catalogue

    try:
        check_catalogue(
            chosen.log_settings()
        )  # before torch is imported: whoever mistyped an address waits for nothing
        with signals.as_flag() as stop:
            from trainer.app import train

            train(chosen, stop)
    except Fenced:
        return _refused(f"run {chosen.run_id} was taken over by another trainer; this one stops")
    except (LogError, PoolError, OSError) as error:
        return _refused(error)
    return 0


def _refused(error: object) -> int:
    print(f"trainer: {error}", file=sys.stderr)
    return 2


def _configure_logs() -> None:
    from schemas.runtime.logs import log_to_stderr

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    log_to_stderr()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
