"""A rank that died, failed or stands still is named by the others, and all of them end.

Each rank has a thread that writes a growing number to the store and reads those of the others. A number that does not
grow for SILENCE_S, by the clock of whoever looks, is a rank that stands still. The process ends from that thread
(`os._exit`): the main one may wait in a collective for the very rank that is gone.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from schemas.runtime.identity import ProcessId
from schemas.runtime.logs import drain_logs
from trainer.ranks.place import Place

BEAT_S = 0.5
SILENCE_S = 15.0
"""Without a beat; twice as long must do for everything, the end of all processes included."""
SUSPICION_SILENCE_S = 4.0
"""The same once a collective has failed, which is a sign of its own."""
STORE_TIMEOUT_S = 10.0
LOST_RANK_CODE = 1
"""Exit code of every rank: start again, the run resumes."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a rank says of itself. `stopping`: it was asked to stop. `failure`: one line, once it cannot go on."""

    count: int = 0
    stopping: bool = False
    failure: str = ""
    machine: str = ""
    pid: int = 0
    started_ticks: int = 0


@dataclass(slots=True)
class Signs:
    """What one rank has seen of the others. Pure: times come from the caller's clock, in seconds."""

    others: Iterable[int]
    now_s: float
    beats: dict[int, Beat] = field(default_factory=dict)
    _seen_s: dict[int, float] = field(default_factory=dict)

    def see(self, beats: dict[int, Beat], now_s: float) -> None:
        """Beats as they stand now. Whoever looked away for long (this process was stopped itself) begins anew."""
        was_away = now_s - self.now_s > SUSPICION_SILENCE_S
        for rank, beat in beats.items():
            if was_away or beat != self.beats.get(rank):
                self.beats[rank], self._seen_s[rank] = beat, now_s
        self.now_s = now_s

    def silent(self, silence_s: float) -> list[int]:
        """Ranks that came and have not been heard of for so long."""
        return [rank for rank, seen_s in self._seen_s.items() if self.now_s - seen_s > silence_s]

    @property
    def stopping(self) -> bool:
        """Whether any of them was asked to stop."""
        return any(beat.stopping for beat in self.beats.values())


class Heartbeat:
    """Of this rank, from `start` to `stop`. Other ranks are judged by what they write and by `ended` (rank -> how)."""

    def __init__(
        self,
        store: dist.TCPStore,
        place: Place,
        *,
        stop: threading.Event,
        ended: Callable[[], dict[int, str]] = dict,
    ) -> None:
        self._store = store.clone()  # one connection does one thing at a time, and the main thread waits on its own
        self._store.set_timeout(timedelta(seconds=STORE_TIMEOUT_S))
        self._rank = place.rank
        self._others = [other for other in range(place.size) if other != place.rank]
        self._stop_requested = stop
        self._ended = ended
        self._silence_s = SILENCE_S
        self._beat = Beat(**_identity())
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="claw-heartbeat", daemon=True)

    def start(self) -> None:
        """From now on this process ends when another rank does."""
        self._thread.start()

    def stop(self) -> None:
        """Whatever happens to the others is no business of this rank any more."""
        self._over.set()
        self._thread.join(STORE_TIMEOUT_S)

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

    def _run(self) -> None:
        signs = Signs(self._others, time.monotonic())
        while not self._over.wait(BEAT_S):
            try:
                self._write()
                signs.see(self._read(), time.monotonic())
            except RuntimeError as error:
                if not self._over.is_set():
                    self._leave(0, f"does not answer: {' '.join(str(error).split())[:200]}")
            self._judge(signs)

    def _judge(self, signs: Signs) -> None:
        if signs.stopping and not self._stop_requested.is_set():
            self._stop_requested.set()
        for rank, beat in signs.beats.items():
            if beat.failure:
                self._leave(rank, f"failed: {beat.failure}", is_reported=rank == 0)
        for rank, how in self._ended().items():
            self._leave(rank, f"died {how}")
        for rank in signs.silent(self._silence_s):
            self._kill(signs.beats[rank])
            self._leave(rank, f"stands still: no sign of life for {self._silence_s:.0f} s")

    def _write(self, failure: str = "") -> None:
        with self._lock:
            before = self._beat
            self._beat = Beat(
                **{
                    **asdict(before),
                    "count": before.count + 1,
                    "stopping": self._stop_requested.is_set(),
                    "failure": failure,
                }
            )
            self._store.set(f"beat/{self._rank}", json.dumps(asdict(self._beat)))

    def _read(self) -> dict[int, Beat]:
        with self._lock:
            here = [rank for rank in self._others if self._store.check([f"beat/{rank}"])]
            return {rank: Beat(**json.loads(self._store.get(f"beat/{rank}"))) for rank in here}

    def _kill(self, beat: Beat) -> None:
        """A stopped process would stay for ever, and somebody may wait for its end."""
        if beat.machine == self._beat.machine:
            ProcessId(beat.pid, beat.started_ticks).signal(signal.SIGKILL)

    def _leave(self, rank: int, what: str, *, is_reported: bool = False) -> None:
        """The end of this process. One rank says why: the lowest that is left, where the lost one did not itself."""
        if self._stop_requested.is_set():
            os._exit(0)
        if self._rank == int(rank == 0) and not is_reported:
            print(f"trainer: rank {rank} {what}; start again to resume the run", file=sys.stderr)
            drain_logs()
        os._exit(LOST_RANK_CODE)


def _identity() -> dict[str, Any]:  # Any: fields of Beat
    """This process, as others on this machine find it."""
    own = ProcessId.of(os.getpid())
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = Path("/proc/self/ns/pid").readlink()
    return {"machine": f"{boot} {namespace}", "pid": os.getpid(), "started_ticks": own.started_ticks if own else 0}
