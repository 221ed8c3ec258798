"""`python -m consumers.quality`: score calls until SIGTERM or SIGINT."""

import argparse
import sys
from collections.abc import Sequence


def parser() -> argparse.ArgumentParser:
    """Flags; what is not given comes from the environment (`CLAW_QUALITY_…`, `CLAW_LOG_…`)."""
    given = argparse.ArgumentParser(prog="quality", description="Score captured calls by pure functions.")
    given.add_argument(
        "--scorer", action="append", help="length, repetition, entropy, format, tool_calls or module:name"
    )
    given.add_argument("--generation", type=int, help="the higher one of several panels wins (0)")
    given.add_argument("--prefix", help="prefix of topic names (claw)")
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """0: stopped as asked, 2: could not start or go on."""
    flags = vars(parser().parse_args(argv))

    from pydantic import ValidationError

    from consumers.quality.app import serve
    from consumers.quality.errors import QualityError
    from consumers.quality.settings import QualitySettings
    from eventlog.errors import LogError
    from eventlog.settings import LogSettings

    own = {"scorers": flags.pop("scorer"), "generation": flags.pop("generation")}
    try:
        settings = QualitySettings(**{name: value for name, value in own.items() if value is not None})
        serve(settings, LogSettings(**{name: value for name, value in flags.items() if value is not None}))
    except (LogError, QualityError, ValidationError) as error:
        print(f"quality: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
