"""A rank that died, failed or stands still is named by the others, and all of them end.

Each rank writes a growing number to the store and reads those of the others. A number that does not grow for SILENCE_S,
by the observer's clock, is a rank that hangs. Two threads: one may wait for a store that answers no more, the
other one judges and ends the process (`os._exit`), while the main thread may wait in a collective for the lost rank.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch.distributed as dist

from claw_r1.runtime.logs import drain_logs
from claw_r1.runtime.processes.process_identity import ProcessId
from claw_r1.trainer.ranks.place import RankPlace

BEAT_S = 0.5
SILENCE_S = 15.0
"""Without a beat; twice as long must do for everything, the end of all processes included."""
SUSPICION_SILENCE_S = 4.0
"""The same once a collective has failed, which is a sign of its own."""
STORE_SILENCE_S = 10.0
"""Without an answer of the store, which rank 0 serves: before its silence is taken for that of all others."""
STORE = -1  # among ranks
LOST_RANK_CODE = 1
"""Exit code of every rank: start again, the run resumes."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The report of a rank about itself. `stopping`: it was asked to stop. `failure`: one line, once it cannot go
    on."""

    count: int = 0
    stopping: bool = False
    failure: str = ""
    machine: str = ""
    pid: int = 0
    started_ticks: int = 0

    @classmethod
    def first(cls) -> "Beat":
        """Returns the first beat of this process, as others on this machine find it."""
        own = ProcessId.of(os.getpid())
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        machine = f"{boot} {Path('/proc/self/ns/pid').readlink()}"
        return cls(machine=machine, pid=os.getpid(), started_ticks=own.started_ticks if own else 0)


@dataclass(slots=True)
class Signs:
    """The times at which each thing last changed: a rank's beat, or how often the store answered. Pure: the caller has
    the clock."""

    now_s: float
    _seen: dict[int, tuple[object, float]] = field(default_factory=dict)

    def see(self, values: Mapping[int, object], now_s: float) -> None:
        """Present values. After a long gap (this process was itself stopped) counting begins again."""
        was_away = now_s - self.now_s > SUSPICION_SILENCE_S
        for name, value in values.items():
            if was_away or name not in self._seen or value != self._seen[name][0]:
                self._seen[name] = value, now_s
        self.now_s = now_s

    def silent(self, silence_s: float) -> list[int]:
        """Returns the names whose sign came, and has not changed for so long."""
        return [name for name, (_, seen_s) in self._seen.items() if self.now_s - seen_s > silence_s]


class Heartbeat:
    """The heartbeat of this rank, from `start` to `stop`. Other ranks are judged by what they write and by `ended`
    (rank -> how)."""

    def __init__(
        self,
        store: dist.TCPStore,
        place: RankPlace,
        *,
        stop: threading.Event,
        ended: Callable[[], dict[int, str]] = dict,
    ) -> None:
        # One connection does one thing at a time, and the main thread waits on its own.
        self._store = dist.PrefixStore(place.scope, store.clone())
        self._rank = place.rank
        self._others = [rank for rank in range(place.size) if rank != place.rank]
        self._stop_requested = stop
        self._ended = ended
        self._silence_s = SILENCE_S
        self._own = Beat.first()
        self._beats: Mapping[int, Beat] = {}
        self._answers = 0
        self._over = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """From now on this process ends when another rank does."""
        for name, target in (("claw-heartbeat", self._exchange), ("claw-rank-judge", self._judge)):
            threading.Thread(target=target, name=name, daemon=True).start()

    def stop(self) -> None:
        """Stops watching the others, whatever happens to them."""
        self._over.set()

    def fail(self, reason: str) -> None:
        """Tell the others, once, why this rank cannot go on; they end. Returns when they can have read it."""
        self._over.set()
        with suppress(RuntimeError):  # the store is gone, and with it whoever would read
            self._write(failure=reason)
            time.sleep(2 * BEAT_S)

    def suspect(self) -> None:
        """A collective failed: whoever is silent now ends this process. Returns when all ranks are alive."""
        self._silence_s = SUSPICION_SILENCE_S
        time.sleep(SUSPICION_SILENCE_S + 4 * BEAT_S)
        self._silence_s = SILENCE_S

    def _exchange(self) -> None:
        """The first beat is sent at once: a rank that dies before it would not be missed."""
        while True:
            try:
                self._write()
                self._beats = self._read()
            except RuntimeError as error:
                if not self._over.is_set():
                    self._leave(0, f"does not answer: {' '.join(str(error).split())[:200]}")
            self._answers += 1
            if self._over.wait(BEAT_S):
                return

    def _judge(self) -> None:
        signs = Signs(time.monotonic())
        while not self._over.wait(BEAT_S):
            beats = self._beats
            signs.see({**beats, STORE: self._answers}, time.monotonic())
            if any(beat.stopping for beat in beats.values()):
                self._stop_requested.set()
            for rank, beat in beats.items():
                if beat.failure:
                    self._leave(rank, f"failed: {beat.failure}", is_reported=rank == 0)
            for rank, how in self._ended().items():
                self._leave(rank, f"died {how}")
            if STORE in signs.silent(STORE_SILENCE_S):
                self._leave(0, f"stands still: its store has not answered for {STORE_SILENCE_S:.0f} s")
            for rank in self._others:
                if rank in signs.silent(self._silence_s):
                    self._leave(rank, f"stands still: no sign of life for {self._silence_s:.0f} s")

    def _write(self, failure: str = "") -> None:
        with self._lock:
            stopping = self._stop_requested.is_set()
            self._own = replace(self._own, count=self._own.count + 1, stopping=stopping, failure=failure)
            self._store.set(f"beat/{self._rank}", json.dumps(asdict(self._own)))

    def _read(self) -> dict[int, Beat]:
        with self._lock:
            here = [rank for rank in self._others if self._store.check([f"beat/{rank}"])]
            return {rank: Beat(**json.loads(self._store.get(f"beat/{rank}"))) for rank in here}

    def _leave(self, rank: int, what: str, *, is_reported: bool = False) -> None:
        """The end of this process. One rank says why: the lowest that is left, where the lost one did not itself."""
        if self._stop_requested.is_set():
            os._exit(0)
        if self._rank == int(rank == 0) and not is_reported:
            print(f"trainer: rank {rank} {what}; start again to resume the run", file=sys.stderr)
            drain_logs()
        lost = self._beats.get(rank)
        if lost is not None and not lost.failure and lost.machine == self._own.machine:
            # One that stands still would stay for ever, and somebody may wait for its end.
            ProcessId(lost.pid, lost.started_ticks).signal(signal.SIGKILL)
        os._exit(LOST_RANK_CODE)
