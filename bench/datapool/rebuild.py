"""The pool made again, and a worker's state read back: `bench.datapool` says what is measured."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.datapool.view import CALLS, MEMBERS, Written, group_rows
from bench.episodes import CALLS as TURNS
from bench.episodes import load, outgoing, publish
from bench.medians import seconds_of
from bench.processes import PARTITIONS, new_log
from bench.report import Figures
from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.eventlog.kafka.reader import stream_ranges
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.keys import parts
from claw_r1.schemas.topics import FACTS, GROUPS, STEPS, TRAJECTORIES
from claw_r1.streams.rebuild import Vector, rebuild
from claw_r1.streams.recovery import pool_copies, recover
from claw_r1.streams.standby import Standby

CAUGHT_UP_S = 600.0
TOPICS = {topic.name: topic for topic in (STEPS, TRAJECTORIES, GROUPS)}


def rebuilt(calls: int) -> Figures:
    """Both loops read all facts from the broker, Kafka threads included."""
    with new_log() as log:
        publish(log, map(outgoing, load(max(1, calls // (MEMBERS * TURNS)))))
        to = end_offsets(log, FACTS)
        decode_s, began = seconds_of(lambda: decode_loop(log, to)), time.process_time()
        done = rebuild(log.model_copy(update={"generation": 2}), to, lambda *_: None)
        rebuild_s = time.process_time() - began
    facts = sum(done.outcomes.values())
    return {
        "rebuild_facts": facts,
        "rebuild_cpu_s": rebuild_s,
        "rebuild_facts_per_cpu_s": facts / rebuild_s,
        "rebuild_ratio_to_decode": rebuild_s / decode_s,
    }


def decode_loop(log: LogSettings, to: Vector) -> None:
    """Reads and decodes every fact."""
    for partition in range(log.partitions):
        for record in stream_ranges(log, {place: (0, end) for place, end in to.items() if place[1] == partition}):
            record.event()


def takeover(takeover_steps: int) -> Figures:
    """Seconds by the clock, in this process."""
    numbers = range(PARTITIONS)
    with new_log() as log, TemporaryDirectory() as folder:
        groups = max(1, takeover_steps // (MEMBERS * CALLS))
        publish(log, (_outgoing(row) for number in range(groups) for row in group_rows(number)))
        cold_s = seconds_of(lambda: recover(log, numbers), time.perf_counter)
        standby = Standby(log)
        standby.hold(numbers)
        standby.wait_caught_up(CAUGHT_UP_S)
        standby_s = seconds_of(lambda: recover(log, numbers, standby.take(numbers)), time.perf_counter)
        kept = log.model_copy(update={"views_dir": Path(folder)})
        for copy in pool_copies(kept, numbers, {}).values():
            copy.close()
        for ended_in_order in Path(folder).glob("*.sum"):
            ended_in_order.unlink()
        file_s = seconds_of(lambda: recover(kept, numbers), time.perf_counter)
    return {
        "takeover_steps": groups * MEMBERS * CALLS,
        "takeover_s": cold_s,
        "takeover_standby_s": standby_s,
        "takeover_file_s": file_s,
    }


def _outgoing(row: Written) -> Outgoing:
    topic, key, value = row
    group = key if topic == GROUPS.name else parts(key)[0].encode()
    return Outgoing(topic=TOPICS[topic], key=key, value=value, partition=partition_of(group, PARTITIONS))
