"""`claw broker`: the kept broker in the foreground, and Kafka's own console tools against it."""

import sys

from claw_r1.claw.local.broker import resolve_broker
from claw_r1.claw.local.kafka.tools import TOOLS, kafka_tool
from claw_r1.runtime.stop_signals import StopSignals

USAGE = f"""usage: claw broker                     run the kept broker until Ctrl-C
       claw broker --nodes N           the same of a new claw home, with N nodes (3: it outlives the loss of one)
       claw broker tool NAME ARGS…    one of Kafka's own tools: {", ".join(sorted(TOOLS))}"""


def run_broker(arguments: list[str]) -> int:
    """Runs the broker or a tool; returns the exit code. Raises CannotRun when there is no broker to be had."""
    match arguments:
        case []:
            return serve(0)
        case ["--nodes", number] if number.isdecimal() and int(number):
            return serve(int(number))
        case ["tool", name, *rest]:
            with resolve_broker() as broker:
                return kafka_tool(name, rest, broker.bootstrap)
        case ["--help" | "-h"]:
            print(USAGE)
            return 0
        case _:
            print(USAGE, file=sys.stderr)
            return 2


def serve(nodes: int) -> int:
    """Until SIGINT or SIGTERM; one that somebody else started is left alone for as long as it runs."""
    stop = StopSignals()
    with resolve_broker(nodes=nodes) as broker:
        print(broker.bootstrap, flush=True)
        while not stop.wait():
            broker.look_after()
    return 0
