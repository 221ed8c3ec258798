"""A log, looked at by the code of another version: `python -m tests.e2e.other_eyes`
with its settings and what agents saw as JSON on stdin."""

import json
import sys

from claw_r1.eventlog.settings import LogSettings
from tests.gateway.processes import Agents, Found
from tests.streams.pool import whole


def main() -> None:
    """Fails where an acknowledged call is lost or there twice, or the pool is not that
    of its facts."""
    given = json.load(sys.stdin)
    log = LogSettings(**given["log"])
    Found.of(log).check(*(Agents("", **each) for each in given["agents"]))
    whole(log)


if __name__ == "__main__":
    main()
