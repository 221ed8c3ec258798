"""One node of a cluster of three on a host of its own: `python -m tests.e2e.hosted_broker FOLDER CLUSTER NUMBER ADDRESS…`."""

import sys
from pathlib import Path

from claw_r1.claw.local.kafka.config import member
from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.runtime.stop_signals import StopSignals

PORTS = (9092, 9093)


def main() -> None:
    """Serves until it is told to stop."""
    folder, cluster, number, *addresses = sys.argv[1:]
    here = addresses[int(number) - 1]
    listeners = {
        "listeners": f"CLIENTS://0.0.0.0:{PORTS[0]},CONTROLLER://{here}:{PORTS[1]}",
        "advertised.listeners": f"CLIENTS://{here}:{PORTS[0]}",
        "controller.quorum.voters": ",".join(f"{node}@{at}:{PORTS[1]}" for node, at in enumerate(addresses, 1)),
    }
    more = {**member(int(number), [PORTS[1]] * len(addresses)), **listeners}
    stop = StopSignals()
    with LocalBroker(Path(folder), ports=PORTS, more=more, cluster_id=cluster):
        while not stop.wait():
            pass


if __name__ == "__main__":
    main()
