"""An exported dataset (docs/export.md) as pool and as facts: what `steps.parquet` says, nothing folded or judged anew.

All of it is in memory. A response that the export does not train is context here, too, whatever the spec of this run says.
"""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from datapool.batch.candidates import Members
from eventlog.errors import HistoryCut
from eventlog.records import Position, Record
from schemas.codec import encode
from schemas.envelopes import envelope
from schemas.events import (
    CallCaptured,
    Curation,
    Edge,
    FactPosition,
    GroupMember,
    GroupRecord,
    Integrity,
    RewardSlot,
    Sampling,
    StepRecord,
    Timings,
    TrajectoryRecord,
    Usage,
    VersionSpan,
)
from trainer.errors import SettingsInvalid

Row = dict[str, Any]  # a cell is whatever its column holds
NOBODY = "dataset"
TOKENS = ("prompt_ids", "response_ids", "response_logprobs")
NO_TIME = Timings(received_us=0, dispatched_us=0, done_us=0)


class OfflineDataset:
    """A `LivePool` and a `FactSource`. Its groups count as sampled by `run_id`."""

    def __init__(self, directory: Path, run_id: str) -> None:
        """Raises SettingsInvalid in one line when there is no dataset."""
        self._run_id = run_id
        self._groups: dict[str, tuple[GroupRecord, Members]] = {}
        self._calls: dict[Position, CallCaptured] = {}
        for group_id, rows in groupby(_rows(directory), key=lambda row: row["group_id"]):
            self._add(group_id, list(rows))

    def groups(self) -> Sequence[GroupRecord]:
        return [record for record, _ in self._groups.values()]

    def members(self, record: GroupRecord) -> Members | None:
        return self._groups[record.group_id][1]

    def trajectories(self, record: GroupRecord) -> Sequence[TrajectoryRecord]:
        return [trajectory for trajectory, _ in self._groups[record.group_id][1]]

    def forget(self, group_id: str) -> None:
        self._groups.pop(group_id, None)

    def wait_caught_up(self, timeout_s: float) -> None:
        """All of it is there."""

    def get(self, positions: Iterable[Position]) -> dict[Position, Record]:
        """The captured calls. Raises HistoryCut where the dataset has none, as for a plan of another dataset."""
        calls = {at: self._calls.get(at) for at in positions}
        for at, call in calls.items():
            if call is None:
                raise HistoryCut(f"the dataset holds no call at {at}")
        return {
            at: Record(at.topic, at.partition, at.offset, 0, None, encode(call)) for at, call in calls.items() if call
        }

    def _add(self, group_id: str, rows: list[Row]) -> None:
        members = [self._member(list(own)) for _, own in groupby(rows, key=lambda row: row["trajectory_id"])]
        self._groups[group_id] = _group(group_id, rows, [record for record, _ in members]), members

    def _member(self, rows: list[Row]) -> tuple[TrajectoryRecord, list[StepRecord]]:
        rows_with_tokens = [row for row in rows if all(row[name] is not None for name in TOKENS)]
        for row in rows_with_tokens:
            call = _call(row)
            self._calls[Position.of(_position(row))] = call
        first = rows[0]
        return TrajectoryRecord(
            group_id=first["group_id"],
            trajectory_id=first["trajectory_id"],
            status="completed",
            calls=tuple(row["call_id"] for row in rows_with_tokens),
            rewards=_slots(first["trajectory_rewards"], None),
            outcome=first["outcome"],
            return_total=first["return_total"],
            policy_run_id=self._run_id,
            channel=first["channel"],
            ready=True,
        ), [_step(row) for row in rows_with_tokens]


def _rows(directory: Path) -> Iterable[Row]:
    """Rows of `steps.parquet` in the order of the export: by group, trajectory and call."""
    path = directory / "steps.parquet"
    if not path.is_file():
        raise SettingsInvalid(
            f"--offline {directory}: neither `pool` nor a dataset of `claw export` (it has no steps.parquet)"
        )
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise SettingsInvalid(
            "--offline DATASET reads Parquet: install pyarrow, which the extra `consumers` has"
        ) from error
    file = parquet.ParquetFile(path)
    columns = [name for name in file.schema_arrow.names if name not in ("messages", "tools")]
    for batch in file.iter_batches(batch_size=256, columns=columns):
        tokens = {name: _vectors(batch.column(name)) for name in TOKENS}
        rest = batch.drop_columns(list(TOKENS)).to_pylist()
        yield from ({**row, **{name: tokens[name][index] for name in TOKENS}} for index, row in enumerate(rest))


def _vectors(column: Any) -> list[bytes | None]:  # Any: an Arrow list array
    """The packed items of each cell, without a Python number in between."""
    return [None if cell.values is None else np.asarray(cell.values).tobytes() for cell in column]


def _position(row: Row) -> FactPosition:
    return FactPosition(topic=row["source_topic"], partition=row["source_partition"], offset=row["source_offset"])


def _group(group_id: str, rows: list[Row], members: list[TrajectoryRecord]) -> GroupRecord:
    """Closed, because nobody adds to it."""
    return GroupRecord(
        group_id=group_id,
        declared=False,
        channel=rows[0]["channel"],
        members=tuple(
            GroupMember(
                trajectory_id=m.trajectory_id, status=m.status, ready=True, return_total=m.return_total, digest=""
            )
            for m in members
        ),
        closed=True,
        ready=True,
        last_progress_us=max(row["received_us"] for row in rows),
    )


def _step(row: Row) -> StepRecord:
    judged = row["quality"] is not None or row["scores"] or row["curation_tags"]
    return StepRecord(
        group_id=row["group_id"],
        trajectory_id=row["trajectory_id"],
        call_id=row["call_id"],
        position=_position(row),
        digest=row["digest"],
        prompt_id=hashlib.sha256(row["prompt_ids"]).hexdigest(),
        finish_reason=row["finish_reason"],
        prompt_length=len(row["prompt_ids"]) // 4,
        response_length=len(row["response_ids"]) // 4,
        spans=_spans(row),
        sampling=_sampling(row),
        status=row["status"],
        trainable=row["trained"],
        reasons=tuple(row["reasons"]) or (() if row["trained"] else ("not_trained_in_dataset",)),
        rewards=_slots(row["rewards"], row["call_id"]),
        reward_total=row["reward_total"],
        curation=_curation(row) if judged else None,
        channel=row["channel"],
        tags=tuple(row["tags"]),
    )


def _curation(row: Row) -> Curation:
    scores = {each["scorer"]: each["score"] for each in row["scores"]}
    return Curation(quality=row["quality"], tags=tuple(row["curation_tags"]), scores=scores, who=NOBODY)


def _slots(rewards: Sequence[Row] | None, call_id: str | None) -> tuple[RewardSlot, ...]:
    return tuple(RewardSlot(call_id=call_id, event_id="", **each) for each in rewards or ())


def _spans(row: Row) -> tuple[VersionSpan, ...]:
    return tuple(VersionSpan(**span) for span in row["version_spans"])


def _sampling(row: Row) -> Sampling:
    return Sampling(temperature=row["temperature"], top_p=1.0, top_k=0)


def _call(row: Row) -> CallCaptured:
    """The fact as far as training reads it; its digest is that of the fact."""
    prompt = row["prompt_ids"]
    return CallCaptured(
        envelope=envelope(NOBODY, event_id=row["digest"]),
        group_id=row["group_id"],
        trajectory_id=row["trajectory_id"],
        call_id=row["call_id"],
        prompt=Edge(suffix=prompt, full_length=len(prompt) // 4, full_digest=hashlib.sha256(prompt).hexdigest()),
        response_ids=row["response_ids"],
        response_logprobs=row["response_logprobs"],
        spans=_spans(row),
        sampling=_sampling(row),
        request=Edge(suffix=b"", full_length=0, full_digest=""),
        response_body=b"",
        model_id=row["model_id"],
        upstream="",
        status=row["status"],
        http_status=200,
        usage=Usage(prompt_tokens=len(prompt) // 4, completion_tokens=len(row["response_ids"]) // 4),
        timings=NO_TIME,
        integrity=Integrity(complete=True),
    )
