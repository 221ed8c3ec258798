"""The process of one sink: `python -m … NAME`. JSON lines at stdin: its place first, then a point per batch; their end
ends it. An error is its last line, with exit code 1."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

SinkPlace = Mapping[str, Any]  # Any: JSON values
TakePoint = Callable[[dict[str, float], int], object]
"""Takes metrics by name, and the number of their batch."""
Finish = Callable[[], object]
REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


def trackio(place: SinkPlace) -> tuple[TakePoint, Finish]:
    """A project of Trackio: a file below the run's directory, or TRACKIO_DIR; online also its variables' targets."""
    os.environ.setdefault("TRACKIO_DIR", str(Path(place["folder"]) / "trackio"))
    if not place["online"]:
        for name in REMOTE:
            os.environ.pop(name, None)
    run = import_module("trackio").init(
        project=place["project"],
        name=place["run_id"],
        config=place["config"],
        resume="allow",
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    return run.log, run.finish


def wandb(place: SinkPlace) -> tuple[TakePoint, Finish]:
    """A run of W&B: files below the run's directory, which `wandb sync` sends; online it sends them itself, by its variables."""
    library = import_module("wandb")
    run = library.init(
        project=place["project"],
        id=place["run_id"],
        name=place["run_id"],
        config=place["config"],
        resume="allow",
        mode="online" if place["online"] else "offline",
        dir=place["folder"],
        settings=library.Settings(console="off", x_disable_stats=True, disable_git=True, disable_code=True),
    )
    return run.log, run.finish


OPENERS: Mapping[str, Callable[[SinkPlace], tuple[TakePoint, Finish]]] = {"trackio": trackio, "wandb": wandb}


def main(name: str) -> int:
    """Hands on all points. Returns the exit code."""
    try:
        write, finish = OPENERS[name](json.loads(sys.stdin.readline()))
        for line in sys.stdin:
            point = json.loads(line)
            batch, version = point.pop("batch"), point.pop("version")
            curves = {f"train/{metric}": value for metric, value in point.items()}
            write({**curves, "version": version}, batch)
        finish()
    except Exception as error:  # noqa: BLE001  # a library raises what it likes; whoever reads the log is told
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
