"""`python -m rollout`: run one rollout worker. Exit 0 after SIGTERM, 1 when it gave up, 2 when it could not start."""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eventlog.settings import LogSettings
    from rollout.settings import RolloutSettings


def parser() -> argparse.ArgumentParser:
    """Flags win over CLAW_ROLLOUT_* and CLAW_LOG_* variables, which win over defaults."""
    flags = argparse.ArgumentParser(prog="python -m rollout", description="A vLLM worker that follows claw.weights.")
    flags.add_argument("--model", type=Path, help="HF model directory to start from")
    flags.add_argument("--model-id", help="whose weights to follow")
    flags.add_argument("--worker-id", help="name of this worker in its reports")
    flags.add_argument("--run-id", help="follow this run only")
    flags.add_argument("--served-name", help="model name in requests")
    flags.add_argument("--port", type=int, help="port of vLLM; 0: a free one")
    flags.add_argument("--log-file", type=Path, help="where vLLM's output goes")
    flags.add_argument("--bootstrap", help="Kafka bootstrap servers")
    flags.add_argument("--prefix", help="prefix of the topics")
    flags.add_argument("--partitions", type=int, help="partitions of the topics")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Parse, then load what is heavy."""
    given = {name: value for name, value in vars(parser().parse_args(arguments)).items() if value is not None}
    renamed = {"bootstrap": "bootstrap_servers", "prefix": "prefix", "partitions": "partitions"}
    of_log = {renamed[name]: given.pop(name) for name in renamed if name in given}

    from pydantic import ValidationError

    from eventlog.settings import LogSettings
    from rollout.settings import RolloutSettings

    given.setdefault("worker_id", os.environ.get("CLAW_ROLLOUT_WORKER_ID", f"worker-{os.uname().nodename}"))
    try:
        return _run(RolloutSettings(**given), LogSettings(**of_log))
    except ValidationError as error:
        return _said("; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()), 2)


def _run(settings: "RolloutSettings", log_settings: "LogSettings") -> int:
    from eventlog.errors import LogError
    from eventlog.kafka.log import KafkaLog
    from rollout.app import serve_on_log
    from rollout.command import check_model
    from rollout.errors import CannotStart, RolloutError
    from schemas.runtime.logs import log_to_stderr

    try:
        check_model(settings.model)  # before the log is asked: it is the likelier mistake, and answers at once
        log_to_stderr()
        asyncio.run(serve_on_log(settings, KafkaLog(log_settings)))
    except CannotStart as error:
        return _said(str(error), 2)
    except (RolloutError, LogError) as error:
        return _said(str(error), 1)
    return 0


def _said(why: str, code: int) -> int:
    print(f"rollout: {why}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
