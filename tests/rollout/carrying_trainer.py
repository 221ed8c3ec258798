"""A trainer that carries versions to hosts of others, and whose loop beats: carrying_trainer FOLDER.

It publishes each version up to the number in FOLDER/wanted, one every so many seconds as stand behind it. Started again, it offers the newest
version anew and goes on behind it. Each version has an export beside, as the checkpoints of the real one.
"""

import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file

from claw_r1.runtime.processes import child
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.events import WeightsPublished
from claw_r1.weights.carry.carrying import Carrying
from claw_r1.weights.snapshot import Snapshots
from claw_r1.weights.transfer_server import TransferServer
from tests.patience import FACTOR
from tests.rollout.supervise import HELD_CARRIER
from tests.rollout.test_sync import published

BUCKET = 1 << 18
TENSORS = 5
"""Of a bucket each: more than there are phases of buckets."""
BEAT_S = 0.02
JOIN_S = 60.0 * FACTOR
RUN = "run"


def tensors(version: int) -> Mapping[str, torch.Tensor]:
    return {f"t{i}": torch.full((BUCKET // 4,), float(version + i)) for i in range(TENSORS)}


def events_of(folder: Path) -> list[WeightsPublished]:
    """All that was published, oldest first."""
    events = [decode(bytes.fromhex(line)) for line in (folder / "events").read_text().splitlines()]
    return [event for event in events if isinstance(event, WeightsPublished)]


def main(folder: Path) -> None:
    """For ever."""
    torch.set_num_threads(1)
    spawn = partial(child.start_spoken_to, HELD_CARRIER)
    carrying = Carrying(("gloo",), spawn, bucket_bytes=BUCKET, join_s=JOIN_S)
    server, snapshots = TransferServer(carrying=carrying), Snapshots()
    before = events_of(folder)
    version, is_offered = before[-1].version if before else 0, not before
    beats, due_s = os.open(folder / "beats", os.O_RDWR | os.O_CREAT), time.monotonic()
    for beat in range(1 << 40):
        os.pwrite(beats, f"{beat:12}".encode(), 0)
        wanted, _, each_s = (folder / "wanted").read_text().partition(" ")
        if not is_offered or (version < int(wanted) and time.monotonic() >= due_s):
            version, is_offered = version + is_offered, True
            snapshot = snapshots.take(tensors(version).items())
            export = folder / "exports" / str(version)
            export.mkdir(parents=True, exist_ok=True)
            save_file(dict(tensors(version)), export / "model.safetensors")
            server.stage(RUN, version, snapshot)
            event = published(export.as_uri(), server.url, version, snapshot.manifest)
            with (folder / "events").open("a") as out:
                out.write(encode(event).hex() + "\n")
            server.settle(RUN, version)
            snapshots.prepare()
            due_s = time.monotonic() + float(each_s)
        time.sleep(BEAT_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
