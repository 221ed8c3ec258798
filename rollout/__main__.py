"""`python -m claw_r1.rollout`: run one rollout worker. Exit 0 after SIGTERM, 1 when it gave up, 2 when it
could not start."""

import asyncio
import sys
from collections.abc import Sequence

from claw_r1.eventlog.settings import LogSettings
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.runtime.command_line import CommandLine, SettingsRefused
from claw_r1.runtime.modules import needs_extra


@needs_extra("rollout")
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, then load what is heavy."""
    command_line = CommandLine(
        "claw rollout",
        "Serve a model with vLLM, and follow the weights that a trainer publishes.",
        RolloutSettings,
        LogSettings,
    )
    flags = command_line.parse(arguments)
    try:
        return _run(command_line.read(RolloutSettings, flags), command_line.read(LogSettings, flags))
    except SettingsRefused as error:
        return _refuse(error, 2)


def _run(settings: RolloutSettings, log_settings: LogSettings) -> int:
    from claw_r1.eventlog.errors import AccessRefused, LogError
    from claw_r1.eventlog.kafka.acls import check_access
    from claw_r1.eventlog.kafka.log import KafkaLog
    from claw_r1.rollout.app import serve_on_log
    from claw_r1.rollout.errors import CannotStart, RolloutError
    from claw_r1.rollout.process import preflight
    from claw_r1.runtime.logs import log_to_stderr
    from claw_r1.runtime.monitoring.server import MetricsPortTaken

    try:
        preflight.check(settings)  # before the log is opened: it is the likelier mistake, and fails at once
        log_to_stderr()
        preflight.check_files(settings)
        check_access(log_settings, "rollout")
        asyncio.run(serve_on_log(settings, KafkaLog(log_settings)))
    except (CannotStart, AccessRefused, MetricsPortTaken) as error:
        return _refuse(error, 2)
    except (RolloutError, LogError) as error:
        return _refuse(error, 1)
    return 0


def _refuse(error: Exception, code: int) -> int:
    print(f"rollout: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
