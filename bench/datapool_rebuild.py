"""A rebuild against a bare decode loop: `python -m bench.datapool_rebuild [CALLS]` prints one JSON object.

Facts as agents leave them stand on a broker (the one that is named or runs, else the kept one). Both loops read all of
them from there: one decodes each fact and forgets it, the other is `claw_r1.streams.rebuild`. CPU seconds of this process, its
Kafka threads included. `decode_alone_cpu_s` is decoding without the reading, of a sample that lies in memory.
"""

import json
import random
import sys
import time
import uuid
from collections.abc import Iterator

from bench.episodes import CALLS, MEMBERS, group, outgoing, publish
from claw_r1.claw.local.broker import resolve_broker
from claw_r1.eventlog.kafka.admin import create_topics, end_offsets
from claw_r1.eventlog.kafka.reader import stream_ranges
from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import Event
from claw_r1.schemas.topics import FACTS
from claw_r1.streams.rebuild import Vector, rebuild

PARTITIONS = 8
SIDE_BY_SIDE = 8
SAMPLE = 5000


def measure(calls: int = 100_000) -> dict[str, float]:
    """Figures of one rebuild of so many calls, with their rewards and lifecycle."""
    with resolve_broker() as broker:
        settings = LogSettings(
            bootstrap_servers=broker.bootstrap, prefix=f"bench{uuid.uuid4().hex[:8]}", partitions=PARTITIONS
        )
        create_topics(settings)
        publish(settings, map(outgoing, episodes(max(SIDE_BY_SIDE, calls // (MEMBERS * CALLS)))))
        to = end_offsets(settings, FACTS)
        decode_s, alone_s = decode_loop(settings, to)
        began = time.process_time()
        done = rebuild(settings.model_copy(update={"generation": 2}), to, _quietly)
        rebuild_s = time.process_time() - began
    facts = sum(done.outcomes.values())
    return {
        "rebuild_facts": facts,
        "rebuild_cpu_s": round(rebuild_s, 2),
        "rebuild_facts_per_cpu_s": round(facts / rebuild_s),
        "decode_cpu_s": round(decode_s, 2),
        "decode_alone_cpu_s": round(alone_s, 2),
        "rebuild_ratio_to_decode": round(rebuild_s / decode_s, 2),
        "rebuild_ratio_to_decode_alone": round(rebuild_s / alone_s, 2),
    }


def _quietly(*_: int) -> None:
    """No progress to show."""


def episodes(groups: int) -> Iterator[Event]:
    source = random.Random(0)
    for start in range(0, groups, SIDE_BY_SIDE):
        runs = [group(number, source) for number in range(start, min(start + SIDE_BY_SIDE, groups))]
        for turn in zip(*runs, strict=True):
            yield from turn


def decode_loop(settings: LogSettings, to: Vector) -> tuple[float, float]:
    """CPU seconds of reading and decoding every fact, and of decoding alone."""
    sample: list[Record] = []
    began = time.process_time()
    count = 0
    for partition in range(settings.partitions):
        ranges = {place: (0, end) for place, end in to.items() if place[1] == partition}
        for record in stream_ranges(settings, ranges):
            record.event()
            count += 1
            if len(sample) < SAMPLE:
                sample.append(record)
    both_s = time.process_time() - began
    began = time.process_time()
    for record in sample:
        record.event()
    return both_s, (time.process_time() - began) * count / len(sample)


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:2])), indent=2))
