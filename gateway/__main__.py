"""`python -m claw_r1.gateway`: parse first, import what is heavy afterwards, so that `--help` is instant."""

import argparse
import sys
from collections.abc import Sequence

from claw_r1.eventlog.settings import LogSettings
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.runtime.command_line import CommandLine, SettingsRefused
from claw_r1.runtime.modules import needs_extra
from claw_r1.schemas.api_keys import Role, new_key


@needs_extra("gateway")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the gateway; 0: stopped as asked, 1: broke, 2: could not start."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command_line = _command_line()
    flags = command_line.parse(arguments)
    if flags.new_key:
        return _print_key(flags.new_key)

    from claw_r1.eventlog.errors import LogError
    from claw_r1.gateway.processes import GatewayProcesses
    from claw_r1.gateway.serve import PortInUse, SpoolUnusable, serve
    from claw_r1.runtime.logs import log_to_stderr
    from claw_r1.runtime.monitoring.server import MetricsPortTaken
    from claw_r1.runtime.monitoring.tracing import TracingRefused

    log_to_stderr()
    try:
        settings = command_line.read(GatewaySettings, flags)
        log_settings = command_line.read(LogSettings, flags)
        if settings.workers > 1:
            return GatewayProcesses(settings, arguments).run()
        return serve(settings, log_settings, flags.listen_fd)
    except (SettingsRefused, LogError, PortInUse, SpoolUnusable, MetricsPortTaken, TracingRefused) as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 2


def _command_line() -> CommandLine:
    line = CommandLine("claw gateway", "Forward model calls to engines and capture them.", GatewaySettings, LogSettings)
    add = line.parser.add_argument
    add("--new-key", choices=("agent", "operator"), help="Make an API key, print it and its hash, and end.")
    add("--listen-fd", type=int, help=argparse.SUPPRESS)  # of a worker: the socket that its parent holds
    return line


def _print_key(role: Role) -> int:
    key, entry = new_key(role)
    print(f"for the client, shown once: {key}\nfor CLAW_GATEWAY_API_KEYS:    {entry}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
