"""The tables of datasets as Arrow schemas, and a Parquet writer of bounded memory. Docs: docs/export.md.

Invariant: the bytes of a file are a function of its rows. Row groups are cut by the size of the rows, the settings of the
writer are fixed, and nothing about the moment or the machine is written.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from claw_r1.schemas.arrays import ITEM_BYTES

TableRow = Mapping[str, Any]
"""By column. Lists of numbers are packed: bytes of little-endian int32 or float32; None is null."""
ROW_GROUP_BYTES = 32 << 20
ROW_GROUP_ROWS = 4096
CELL_BYTES = 16  # what a small cell counts when row groups are cut
IDS, FLOATS = pa.list_(pa.int32()), pa.list_(pa.float32())
REWARDS = pa.list_(
    pa.struct(
        [
            ("source", pa.string()),
            ("name", pa.string()),
            ("value", pa.float64()),
            ("revision", pa.int64()),
            ("occurred_at_us", pa.int64()),
            ("event_id", pa.string()),
            ("verdict", pa.bool_()),
        ]
    )
)
SPANS = pa.list_(
    pa.struct([("run_id", pa.string()), ("version", pa.int64()), ("start", pa.int32()), ("end", pa.int32())])
)
SCORES = pa.list_(pa.struct([("scorer", pa.string()), ("score", pa.float64())]))
MESSAGES = pa.list_(
    pa.struct([(name, pa.string()) for name in ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning")])
)
IDENTITY = [("group_id", pa.string()), ("trajectory_id", pa.string())]
WHOSE = [("channel", pa.string()), ("agent", pa.string()), ("task", pa.string())]
RETURNS = [
    ("reward", pa.float64()),
    ("trajectory_rewards", REWARDS),
    ("outcome", pa.float64()),
    ("return_total", pa.float64()),
    ("group_reward_mean", pa.float64()),
    ("group_reward_std", pa.float64()),
]
STEPS = pa.schema(
    [
        *IDENTITY,
        ("call_id", pa.string()),
        ("attempt", pa.int32()),
        ("choice", pa.int32()),
        *WHOSE,
        ("tags", pa.list_(pa.string())),
        ("run_id", pa.string()),
        ("model_id", pa.string()),
        ("status", pa.string()),
        ("finish_reason", pa.string()),
        ("trainable", pa.bool_()),
        ("reasons", pa.list_(pa.string())),
        ("trained", pa.bool_()),
        ("advantage", pa.float64()),
        ("quality", pa.float64()),
        ("scores", SCORES),
        ("curation_tags", pa.list_(pa.string())),
        ("base_call_id", pa.string()),
        ("base_keep", pa.int32()),
        ("prompt_ids", IDS),
        ("response_ids", IDS),
        ("response_logprobs", FLOATS),
        ("version_spans", SPANS),
        ("temperature", pa.float32()),
        ("messages", MESSAGES),
        ("tools", pa.string()),
        ("rewards", REWARDS),
        ("reward_total", pa.float64()),
        ("trajectory_status", pa.string()),
        ("trajectory_counted", pa.bool_()),
        ("trajectory_ready", pa.bool_()),
        ("trajectory_reasons", pa.list_(pa.string())),
        *RETURNS,
        ("group_tags", pa.list_(pa.string())),
        ("group_progress_us", pa.int64()),
        ("received_us", pa.int64()),
        ("digest", pa.string()),
        ("source_topic", pa.string()),
        ("source_partition", pa.int32()),
        ("source_offset", pa.int64()),
    ]
)
CALLED = pa.struct(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())])),
    ]
)
CHAT = pa.list_(
    pa.struct(
        [
            ("role", pa.string()),
            ("content", pa.string()),
            ("name", pa.string()),
            ("tool_calls", pa.list_(CALLED)),
            ("tool_call_id", pa.string()),
            ("reasoning_content", pa.string()),
        ]
    )
)
PAIRS = pa.schema(
    [
        ("group_id", pa.string()),
        ("source", pa.string()),
        ("name", pa.string()),
        ("who", pa.list_(pa.string())),
        *((name, CHAT) for name in ("prompt", "chosen", "rejected")),
        ("tools", pa.string()),
        *((f"{name}_ids", IDS) for name in ("prompt", "chosen", "rejected")),
        ("margin", pa.float64()),
        *(
            (f"{side}_{name}", kind)
            for side in ("chosen", "rejected")
            for name, kind in (
                ("trajectory_id", pa.string()),
                ("call_id", pa.string()),
                ("versions", pa.list_(pa.string())),
                ("reward", pa.float64()),
            )
        ),
        ("event_ids", pa.list_(pa.string())),
        *WHOSE,
    ]
)
GROUPS = pa.schema([("group_id", pa.string()), ("trajectories", pa.int32())])
SEQUENCES = pa.schema(
    [
        *IDENTITY,
        ("sequence", pa.int32()),
        ("call_ids", pa.list_(pa.string())),
        *WHOSE,
        ("sequence_ids", IDS),
        ("loss_mask", IDS),
        ("logprobs", FLOATS),
        ("temperatures", FLOATS),
        ("versions", IDS),
        ("advantages", FLOATS),
        ("policy_run_id", pa.string()),
        *RETURNS,
        ("source_topic", pa.string()),
        ("source_partition", pa.int32()),
        ("source_offsets", pa.list_(pa.int64())),
    ]
)


class TableWriter:
    """One Parquet file, written row group by row group."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self._schema = schema
        self._buffer: list[TableRow] = []
        self._bytes = 0
        self._writer = pq.ParquetWriter(
            path, schema, version="2.6", data_page_version="1.0", compression="zstd", compression_level=3
        )

    def write(self, row: TableRow) -> None:
        self._buffer.append(row)
        self._bytes += sum(len(cell) if isinstance(cell, (bytes, str)) else CELL_BYTES for cell in row.values())
        self.rows += 1
        if self._bytes >= ROW_GROUP_BYTES or len(self._buffer) >= ROW_GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if not self._buffer:
            return
        columns = [_column([row[field.name] for row in self._buffer], field.type) for field in self._schema]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._buffer, self._bytes = [], 0


def _column(cells: list[Any], kind: pa.DataType) -> pa.Array:
    return _packed(cells, kind) if kind in (IDS, FLOATS) else pa.array(cells, kind)


def _packed(cells: list[bytes | None], kind: pa.ListType) -> pa.Array:
    """Packed numbers become a list column without a Python number in between."""
    ends = [0]
    for cell in cells:
        ends.append(ends[-1] + len(cell or b"") // ITEM_BYTES)
    data = pa.py_buffer(b"".join(cell or b"" for cell in cells))
    values = pa.Array.from_buffers(kind.value_type, ends[-1], [None, data])
    missing = pa.array([cell is None for cell in cells])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, type=kind, mask=missing)
