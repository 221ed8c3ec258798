"""`python -m streams`: parse first, import what is heavy afterwards, so that `--help` is instant."""

import argparse
import sys
from collections.abc import Sequence

EPILOG = "All settings: CLAW_STREAMS_<FIELD> in the environment (streams/settings.py); a flag wins."
LOG_FLAGS = ("bootstrap_servers", "prefix", "partitions", "generation")


def parser() -> argparse.ArgumentParser:
    """Flags of the command; what is not given comes from the environment."""
    given = argparse.ArgumentParser(prog="streams", description="Fold facts into the pool.", epilog=EPILOG)
    given.add_argument("--group-instance-id", help="static membership: a name that survives restarts")
    given.add_argument(
        "--no-reactors", dest="reactors_enabled", action="store_false", default=None, help="decide nothing"
    )
    given.add_argument("--metrics-port", type=int, help="serve Prometheus metrics here (not served)")
    given.add_argument("--bootstrap-servers", help="Kafka brokers (KAFKA_BOOTSTRAP_SERVERS)")
    given.add_argument("--prefix", help="prefix of topic names (claw)")
    given.add_argument("--partitions", type=int, help="partitions of every topic (32)")
    given.add_argument("--generation", type=int, help="of the pool, see `claw rebuild` (1)")
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Fold until SIGTERM or SIGINT; 0: stopped as asked, 2: could not start; others: `streams.errors.ExitCode`."""
    flags = {name: value for name, value in vars(parser().parse_args(argv)).items() if value is not None}

    from pydantic import ValidationError

    from streams.logs import configure_logs

    configure_logs()
    from eventlog.errors import LogError
    from eventlog.settings import LogSettings
    from streams.serve import serve
    from streams.settings import StreamsSettings

    log_flags = {name: flags.pop(name) for name in LOG_FLAGS if name in flags}
    try:
        return serve(StreamsSettings(**flags), LogSettings(**log_flags))
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return _refuse(f"setting {where}: {first['msg']}")
    except (LogError, OSError) as error:
        return _refuse(str(error))


def _refuse(line: str) -> int:
    print(f"streams: {line}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
