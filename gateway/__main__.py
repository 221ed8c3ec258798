"""`python -m gateway`: parse first, import what is heavy afterwards, so that `--help` is instant."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.api_keys import Role

EPILOG = "All settings: CLAW_GATEWAY_<FIELD> in the environment (gateway/settings.py); a flag wins."


def parser() -> argparse.ArgumentParser:
    """Flags of the command; what is not given comes from the environment."""
    given = argparse.ArgumentParser(prog="gateway", description="Forward model calls and capture them.", epilog=EPILOG)
    given.add_argument("--host", help="address to listen on (127.0.0.1)")
    given.add_argument("--port", type=int, help="port to listen on; 0: a free one (8000)")
    given.add_argument("--upstream", dest="upstreams", action="append", metavar="URL", help="fixed server; repeatable")
    given.add_argument("--worker-wait-s", type=float, help="how long a call waits for an engine (30)")
    given.add_argument("--workers", type=int, help="processes on the port (1)")
    given.add_argument("--metrics-port", type=int, help="a port for /metrics alone; one per worker, counted from here")
    given.add_argument("--spool-dir", metavar="DIR", help="where events wait while the broker is away (.claw/spool)")
    given.add_argument("--listen-fd", type=int, help=argparse.SUPPRESS)  # of a worker: the socket its parent holds
    given.add_argument(
        "--new-key", choices=("agent", "operator"), help="make an API key, print it and its hash, and end"
    )
    given.add_argument("--instance", help="name of this process in events (random)")
    given.add_argument(
        "--bootstrap", "--bootstrap-servers", dest="bootstrap_servers", help="Kafka brokers (KAFKA_BOOTSTRAP_SERVERS)"
    )
    given.add_argument("--prefix", help="prefix of topic names (claw)")
    given.add_argument("--partitions", type=int, help="partitions of every topic (32)")
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Run the gateway; 0: stopped as asked, 1: broke, 2: could not start."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    flags = {name: value for name, value in vars(parser().parse_args(arguments)).items() if value is not None}

    if role := flags.pop("new_key", None):
        return _print_key(role)

    from pydantic import ValidationError

    from eventlog.errors import LogError
    from eventlog.settings import LogSettings
    from gateway.fleet import Fleet
    from gateway.serve import PortInUse, SpoolUnusable, serve
    from gateway.settings import GatewaySettings
    from schemas.runtime.logs import log_to_stderr

    log_to_stderr()
    log_flags = {name: flags.pop(name) for name in ("bootstrap_servers", "prefix", "partitions") if name in flags}
    try:
        listen_fd = flags.pop("listen_fd", None)
        settings, log_settings = GatewaySettings(**flags), LogSettings(**log_flags)
        if settings.workers > 1:
            return Fleet(settings, arguments).run()
        return serve(settings, log_settings, listen_fd)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return _refuse(f"setting {where}: {first['msg']}")
    except (LogError, PortInUse, SpoolUnusable) as error:
        return _refuse(str(error))


def _print_key(role: "Role") -> int:
    from gateway.api_keys import new_key

    key, entry = new_key(role)
    print(f"for the client, shown once: {key}\nfor CLAW_GATEWAY_API_KEYS:    {entry}")
    return 0


def _refuse(line: str) -> int:
    print(f"gateway: {line}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
