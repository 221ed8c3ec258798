"""The walk of one thing through the house, in files: a call, a reward, a verdict, a page update. `python -m bench.walk`: each is done
once to warm up and once under a trace of Python's calls. JSON: files passed, moves from a file into another, of them between rooms.
"""

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[1]
APART = ("tests", "bench", ".venv", "eventlog/memory")
"""No user's call passes these: the log's memory twin, which stands
for Kafka here, is asked again and again while nothing comes."""
JSON = {"content-type": "application/json"}


class Trace:
    """The files of the house that any thread passes while `on`; threads must start after `installed`."""

    def __init__(self) -> None:
        self.on = False
        self.ways: dict[int, list[str]] = {}
        self._names: dict[str, str | None] = {}

    @contextmanager
    def installed(self, main: bool) -> Iterator[None]:
        """main: whether this thread's own calls count, too."""
        threading.setprofile(self._seen)
        if main:
            sys.setprofile(self._seen)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def figures(self) -> dict[str, int]:
        """Files, moves there and back, and how many of them pass from a room into another."""
        moves = [move for way in self.ways.values() for move in pairwise(way) if move[0] != move[1]]
        rooms = [(start.split("/")[0], end.split("/")[0]) for start, end in moves]
        return {
            "files": len({name for way in self.ways.values() for name in way}),
            "moves": len(moves),
            "borders": sum(start != end for start, end in rooms),
        }

    def _seen(self, frame: FrameType, event: str, _: object) -> None:
        if self.on and event in ("call", "return"):
            here = frame if event == "call" else frame.f_back
            if here is not None and (name := self._name(here.f_code.co_filename)):
                self.ways.setdefault(threading.get_ident(), []).append(name)

    def _name(self, path: str) -> str | None:
        if path not in self._names:
            at = Path(path).resolve()
            own = at.is_relative_to(ROOT) and not any(at.is_relative_to(ROOT / each) for each in APART)
            self._names[path] = str(at.relative_to(ROOT)) if own else None
        return self._names[path]


def call(trace: Trace) -> None:
    """One chat call, from the socket to its acknowledgement, on the log's memory twin."""
    _post(trace, "t/g/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]})


def reward(trace: Trace) -> None:
    """One reward over HTTP."""
    _post(trace, "t/g/v1/rewards", {"value": 1.0})


def verdict(trace: Trace) -> None:
    """One trajectory that a slot of `claw rewards` judges."""
    from tests.consumers.published import episode
    from tests.consumers.rewards.in_memory import FunctionScorer, add_to, at_work, pooled_log, slot_of, work_off

    log, slot = pooled_log(episode("a", "t", None)), slot_of("trajectory")
    with at_work(log, slot, FunctionScorer(lambda judged: (1.0,) * judged.answers)) as loop:
        work_off(log, slot, loop)
        add_to(log, episode("b", "t", 0.5))
        with trace.installed(main=True):
            trace.on = True
            work_off(log, slot, loop)
            trace.on = False


def page(trace: Trace) -> None:
    """A reward comes in, and an open page of the dashboard is told."""
    from tests import facts
    from tests.consumers.dashboard.stage import DashboardStage, episode

    stage = DashboardStage(episode("g", "t", "which?", "this one"))
    with trace.installed(main=False), stage.served() as url, urlopen(f"{url}/api/v1/session") as session:
        cookie = session.headers.get("set-cookie", "").split(";")[0]
        with urlopen(Request(f"{url}/api/v1/live", headers={"cookie": cookie}), timeout=30) as stream:
            for value in (0.5, 1.0):
                trace.on = value == 1.0
                stage.tell(facts.reward("g", "t", value))
                while not stream.readline().startswith(b"data:"):
                    pass
            trace.on = False


def _post(trace: Trace, path: str, body: dict[str, Any]) -> None:
    from tests.gateway.engine import ScriptedEngine
    from tests.gateway.house import House
    from tests.gateway.speaking import answer

    with trace.installed(main=False), ScriptedEngine() as engine, House() as house:
        engine.default = answer
        house.worker(engine.url)
        for again in (False, True):
            trace.on = again
            with urlopen(Request(f"{house.url}/{path}", json.dumps(body).encode(), JSON), timeout=30) as reply:
                reply.read()
        trace.on = False


WALKS: dict[str, Callable[[Trace], None]] = {"call": call, "reward": reward, "verdict": verdict, "page": page}


def main() -> None:
    """Prints the figures of each walk, with `--way` the files in order."""
    parser = argparse.ArgumentParser(prog="bench.walk", description=__doc__)
    parser.add_argument("--only", choices=WALKS, help="this walk alone")
    parser.add_argument("--way", action="store_true", help="print the files in the order in which they are passed")
    chosen = parser.parse_args()
    figures = {}
    for name in [chosen.only] if chosen.only else WALKS:
        trace = Trace()
        WALKS[name](trace)
        figures[name] = trace.figures()
        if chosen.way:
            for way in trace.ways.values():
                print(*way, sep="\n", file=sys.stderr)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
