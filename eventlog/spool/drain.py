"""The way out of the spool: a thread that offers its records to the log until the log has them all.

Input: the segments of a Spool, oldest first. Delivery: at least once, by event_id; a crash offers a segment again from
its start. Ordering: none, but for records spooled as `behind`: such a one is offered only after the log acknowledged
every earlier record with its key. While the log is away, one record at a time is offered, as a probe.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future

import structlog

from claw_r1.eventlog.errors import LogError, RecordTooLarge
from claw_r1.eventlog.records import Outgoing, Position
from claw_r1.eventlog.spool.frames import Spooled, read_frames
from claw_r1.eventlog.spool.segment import Segment
from claw_r1.eventlog.spool.spool import Spool

log = structlog.get_logger()

WAVE_RECORDS_MAX = 256
WAVE_BYTES_MAX = 4 << 20
IDLE_S = 0.5
RETRY_WAIT_S = 0.25
ADOPT_EVERY_S = 15.0
DISK_WAIT_S = 5.0


class Drainer:
    """`produce` is the log's. A disk that cannot be read is tried again; a bug ends the
    thread, and `on_error` hears."""

    def __init__(
        self,
        spool: Spool,
        produce: Callable[[Outgoing], Future[Position]],
        on_error: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self.error: BaseException | None = None
        self._spool, self._produce, self._on_error = spool, produce, on_error
        self._adopt_at_s = time.monotonic() + ADOPT_EVERY_S
        self._away = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="claw-spool-drain", daemon=True)

    @property
    def away(self) -> bool:
        """The log did not reply lately, and the spool holds records that will show when it does again."""
        return self._away.is_set() and not self._spool.empty

    def start(self) -> None:
        self._thread.start()

    def log_is_away(self) -> None:
        """Somebody waited in vain for the log's answer."""
        self._away.set()

    def stop(self, timeout_s: float) -> None:
        """Ends the thread after the wave in hand, or leaves it behind after `timeout_s`."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
        except BaseException as error:  # noqa: BLE001  # whatever it is, the owner has to hear of it
            log.error("spool_drain_ended", error=f"{type(error).__name__}: {error}")
            self.error = error
            self._on_error(error)

    def _step(self) -> None:
        try:
            segment = self._spool.next_segment(IDLE_S)
            if segment is not None:
                self._drain(segment)
            elif time.monotonic() > self._adopt_at_s:
                self._adopt_at_s = time.monotonic() + ADOPT_EVERY_S
                self._spool.adopt()
        except OSError as broken:
            log.error("spool_unreadable", error=str(broken))
            self._stopping.wait(DISK_WAIT_S)

    def _drain(self, segment: Segment) -> None:
        for wave in waves(read_frames(segment.path), self._wave_records_max):
            if not self._offer(wave):
                return  # stopping: the whole segment is offered again by whoever comes next
        self._spool.remove(segment)
        log.info("spool_segment_drained", records=segment.records, bytes=segment.bytes)

    def _wave_records_max(self) -> int:
        return 1 if self.away else WAVE_RECORDS_MAX

    def _offer(self, wave: Sequence[Spooled]) -> bool:
        """Returns once the log has all of them; False when stopped before."""
        remaining = list(wave)
        while remaining and not self._stopping.is_set():
            offered = [(spooled, self._produce(spooled.item)) for spooled in remaining]
            outcomes = [(spooled, self._is_acknowledged(spooled, future)) for spooled, future in offered]
            in_log = [spooled for spooled, acknowledged in outcomes if acknowledged]
            remaining = [spooled for spooled, acknowledged in outcomes if not acknowledged]
            if in_log:
                self._spool.acknowledged(in_log)
                self._away.clear()
            else:
                self._away.set()
                self._stopping.wait(RETRY_WAIT_S)
        return not remaining

    def _is_acknowledged(self, spooled: Spooled, future: Future[Position]) -> bool:
        try:
            future.result()
        except RecordTooLarge:
            self._spool.refuse(spooled)
        except LogError as silent:
            log.debug("spooled_record_not_acknowledged", error=str(silent))
            return False
        return True


def waves(records: Iterable[Spooled], records_max: Callable[[], int]) -> Iterator[list[Spooled]]:
    """Records that may be on their way at the same time: no `behind` one together with an earlier one of its key."""
    wave: list[Spooled] = []
    keys: set[bytes | None] = set()
    size = 0
    for spooled in records:
        full = len(wave) >= records_max() or size >= WAVE_BYTES_MAX
        if wave and (full or (spooled.behind and spooled.item.key in keys)):
            yield wave
            wave, keys, size = [], set(), 0
        wave.append(spooled)
        keys.add(spooled.item.key)
        size += len(spooled.item.value or b"")
    if wave:
        yield wave
