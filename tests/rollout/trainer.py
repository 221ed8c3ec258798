"""A trainer that only publishes: a version every PERIOD_S, from its own transfer server, until it is ended.

usage: trainer.py MODEL EVENTS PERIOD_S. Started again, it offers the newest version anew and goes on behind it, as the
real one does; while EVENTS.hold exists, it publishes nothing new.
"""

import sys
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import WeightsPublished
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.transfer_server import TransferServer
from tests.rollout.worker import RUN, changed, write_published


def last_version(events: Path) -> int:
    """-1 before the first."""
    lines = events.read_text().splitlines()
    event = decode(bytes.fromhex(lines[-1])) if lines else None
    return event.version if isinstance(event, WeightsPublished) else -1


def main(model: Path, events: Path, period_s: float) -> None:
    """For ever."""
    torch.set_num_threads(1)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    server = TransferServer()
    version = max(0, last_version(events))
    while True:
        weights = changed(base, version)
        named = [(name, p.detach()) for name, p in weights.named_parameters()]
        snapshot = WeightsSnapshot.of(named)
        server.stage(RUN, version, snapshot)
        write_published(events, version, snapshot.manifest, weights, server.url)
        time.sleep(period_s)
        while events.with_suffix(".hold").exists():
            time.sleep(0.02)
        version += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
