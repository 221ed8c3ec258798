"""The space of one long conversation on the broker's disk: its facts, and its rows in the pool after compaction.

Deltas and events are as the gateway writes them, each record sent when it is made, packed as the settings say
(`CLAW_LOG_COMPRESSION`). Token ids are uniform over 150,000, the text is written from the ids and no log-probability repeats:
conversations of a language pack better.
"""

import json
import random
import subprocess
from contextlib import closing

from bench.deltas.long_conversation import conversation, output_bytes
from bench.episodes import START_US, envelope, group
from bench.processes import broker, topics_on
from bench.report import Figures
from claw_r1.claw.local.kafka.tools import tool_command
from claw_r1.datapool.fold.project import RowKey
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.gateway.capture.delta_encoding import DeltaEncoder
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import GroupEvicted, TrajectoryCompleted
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, GROUPS, POSITIONS, STEPS, TRAJECTORIES
from claw_r1.streams.partition.state import PartitionState

Rows = dict[RowKey, Outgoing]


def measure(turns: int, tokens: int) -> Figures:
    """Bytes on disk and before packing, and their ratios to `linear`."""
    facts, linear = facts_of(turns, tokens)
    rows = pool_rows(facts, "group")
    with broker() as found:
        on_disk = stored(found.bootstrap, facts, list(rows.values()))
    unpacked = sum(len(value) for value in facts) + sum(len(row.value or b"") for row in rows.values())
    facts_bytes = on_disk.pop(CALLS.name)
    pool_bytes = sum(on_disk.values())
    return {
        "facts_bytes": facts_bytes,
        "pool_bytes": pool_bytes,
        "linear_bytes": linear,
        "storage_ratio_facts": facts_bytes / linear,
        "storage_ratio_pool": pool_bytes / linear,
        "storage_ratio_unpacked": unpacked / linear,
        "storage_ratio_to_linear": (facts_bytes + pool_bytes) / linear,
        "stub_bytes": stub_bytes(),
    }


def stub_bytes() -> int:
    """Bytes of keys and values that are left of the pool's rows of a group of 8 x 2 calls when it is evicted."""
    facts = list(group(0, random.Random(0)))
    gone = GroupEvicted(
        envelope=envelope("g000000-e", 99), group_id="g000000", reason="retention", requested_by="reactors"
    )
    rows = pool_rows([encode(fact) for fact in (*facts, gone)], "g000000")
    return sum(len(key.key) + len(row.value) for key, row in rows.items() if row.value is not None)


def facts_of(turns: int, tokens: int) -> tuple[list[bytes], int]:
    """The facts, encoded, and the bytes of `linear`."""
    facts: list[bytes] = []
    outputs = 0
    for turn in conversation(turns, tokens, DeltaEncoder(1 << 28, 8)):
        facts.append(turn.value)
        outputs += output_bytes(turn.event)
    event = turn.event
    done = TrajectoryCompleted(
        envelope=event.envelope,
        group_id=event.group_id,
        trajectory_id=event.trajectory_id,
        status="completed",
        calls=turns,
    )
    return [*facts, encode(done)], 4 * len(turn.prompt) + len(turn.request) + outputs


def pool_rows(facts: list[bytes], group_id: str) -> Rows:
    """Returns the rows of the pool that compaction leaves of the facts of a group."""
    state = PartitionState(0, 1)
    rows: Rows = {}
    for offset, value in enumerate(facts):
        state.apply(
            Record(topic="claw.calls", partition=0, offset=offset, timestamp_ms=0, key=group_key(group_id), value=value)
        )
        for row in state.take_batch(START_US):
            if row.topic is not POSITIONS and row.key is not None:
                rows[RowKey(row.topic.name, row.key)] = row
    return rows


def stored(bootstrap: str, facts: list[bytes], rows: list[Outgoing]) -> dict[str, int]:
    """Topic -> bytes of its segments."""
    log = topics_on(bootstrap, partitions=1)
    with closing(EventProducer(log)) as producer:
        for value in facts:
            producer.produce(Outgoing(topic=CALLS, key=group_key("group"), value=value, headers=())).result()
        for future in [producer.produce(row) for row in rows]:
            future.result()
    catalogue = log.catalogue()
    return {topic.name: _bytes(bootstrap, catalogue.name(topic)) for topic in (CALLS, STEPS, TRAJECTORIES, GROUPS)}


def _bytes(bootstrap: str, topic: str) -> int:
    command = tool_command("log-dirs", ["--describe", "--topic-list", topic], bootstrap)
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    (line,) = (line for line in said.splitlines() if line.startswith("{"))
    folders = [folder for one in json.loads(line)["brokers"] for folder in one["logDirs"]]
    return sum(part["size"] for folder in folders for part in folder["partitions"])
