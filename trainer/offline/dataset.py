"""An exported dataset (docs/export.md) as pool and as facts: from `steps.parquet`, without folding or judging again.

All of it is in memory. A response that the export does not train is context here, too, whatever the spec of this run.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from claw_r1.datapool.batch.candidates import OVER, Members
from claw_r1.datapool.batch.masks import ID_FLAWS
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.state import StepState
from claw_r1.datapool.fold.step import captured
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.records import Position, Record
from claw_r1.schemas.codec import encode
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import (
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
from claw_r1.trainer.errors import SettingsInvalid

DatasetRow = dict[str, Any]  # a cell is whatever its column holds
TOKENS = ("prompt_ids", "response_ids", "response_logprobs")
AS_THEY_ARE = (
    "group_id", "trajectory_id", "call_id", "response_ids", "response_logprobs", "model_id", "channel", "agent", "status",
    "finish_reason",
)  # fmt: skip
ROWS_AT_ONCE = 256


class OfflineDataset:
    """A `LivePool` and a `FactSource`. Its groups count as sampled by `run_id`."""

    def __init__(self, directory: Path, run_id: str, spec: BatchSpec) -> None:
        """Raises SettingsInvalid in one line when there is no dataset, or one that lacks what the spec reads."""
        self._run_id = run_id
        self._groups: dict[str, tuple[GroupRecord, Members]] = {}
        self._calls: dict[Position, bytes] = {}
        for group_id, rows in groupby(_rows(directory, spec), key=lambda row: row["group_id"]):
            self._add(group_id, list(rows))

    def groups(self) -> Sequence[GroupRecord]:
        return [record for record, _ in self._groups.values()]

    def members(self, record: GroupRecord) -> Members | None:
        return [(row, steps) for row, steps in self._groups[record.group_id][1] if row.status in OVER]

    def trajectories(self, record: GroupRecord) -> Sequence[TrajectoryRecord]:
        return [trajectory for trajectory, _ in self._groups[record.group_id][1]]

    def forget(self, group_id: str) -> None:
        self._groups.pop(group_id, None)

    def wait_caught_up(self, timeout_s: float) -> None:
        """All of it is there."""

    def get(self, positions: Iterable[Position]) -> dict[Position, Record]:
        """The captured calls. Raises HistoryCut where the dataset has none, as for a plan of another dataset."""
        try:
            return {at: Record(at.topic, at.partition, at.offset, 0, None, self._calls[at]) for at in positions}
        except KeyError as missing:
            raise HistoryCut(f"the dataset holds no call at {missing}") from missing

    def _add(self, group_id: str, rows: list[DatasetRow]) -> None:
        # Exports before format 4 tell nothing of a trajectory; theirs are all members, completed and ready.
        counted = [row for row in rows if row.get("trajectory_counted", True)]
        members = [self._member(list(own)) for _, own in groupby(counted, key=lambda row: row["trajectory_id"])]
        self._groups[group_id] = _group(rows, [record for record, _ in members]), members

    def _member(self, rows: list[DatasetRow]) -> tuple[TrajectoryRecord, list[StepRecord]]:
        """Calls whose tokens could not be put together are left out: the export trains none of them."""
        first, steps = rows[0], list[StepRecord]()
        for row in rows:
            if all(row[name] is not None for name in TOKENS):
                at, call = _position(row), _call(row)
                self._calls[Position.of(at)] = encode(call)
                steps.append(_step(row, call, at))
        record = TrajectoryRecord(
            group_id=first["group_id"],
            trajectory_id=first["trajectory_id"],
            status=first.get("trajectory_status", "completed"),
            calls=tuple(step.call_id for step in steps),
            rewards=_slots(first["trajectory_rewards"], None),
            outcome=first["outcome"],
            return_total=first["return_total"],
            policy_run_id=self._run_id,
            channel=first["channel"],
            ready=first.get("trajectory_ready", True),
            reasons=tuple(first.get("trajectory_reasons", ())),
        )
        return record, steps


def _rows(directory: Path, spec: BatchSpec) -> Iterator[DatasetRow]:
    """Rows of `steps.parquet` in the order of the export: by group, trajectory and call. Token lists as packed bytes."""
    path = directory / "steps.parquet"
    if not path.is_file():
        raise SettingsInvalid(
            f"--offline {directory}: neither `pool` nor a dataset of `claw export` (no steps.parquet)"
        )
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise SettingsInvalid("--offline DATASET reads Parquet: install pyarrow (the extra `consumers`)") from error
    file = parquet.ParquetFile(path)
    _check_tags(directory, file.schema_arrow.names, spec)
    columns = [name for name in file.schema_arrow.names if name not in ("messages", "tools")]
    for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns):
        tokens = {name: [_packed(cell) for cell in batch.column(name)] for name in TOKENS}
        for index, row in enumerate(batch.drop_columns(list(TOKENS)).to_pylist()):
            yield {**row, **{name: tokens[name][index] for name in TOKENS}}


def _check_tags(directory: Path, columns: Collection[str], spec: BatchSpec) -> None:
    """Exports before format 4 have no tags of groups: no group would be of an environment, and all of one priority."""
    reads = "environments" if spec.environments else "order: priority" if spec.order == "priority" else None
    if reads is not None and "group_tags" not in columns:
        raise SettingsInvalid(f"--offline {directory}: spec.{reads} reads tags of groups, which it lacks: export again")


def _packed(cell: Any) -> bytes | None:  # Any: an Arrow list of numbers
    return None if cell.values is None else np.asarray(cell.values).tobytes()


def _position(row: DatasetRow) -> FactPosition:
    return FactPosition(topic=row["source_topic"], partition=row["source_partition"], offset=row["source_offset"])


def _group(rows: list[DatasetRow], members: list[TrajectoryRecord]) -> GroupRecord:
    """Closed, because nobody adds to it."""
    return GroupRecord(
        group_id=rows[0]["group_id"],
        declared=False,
        channel=rows[0]["channel"],
        members=tuple(
            GroupMember(
                trajectory_id=member.trajectory_id,
                status=member.status,
                ready=member.ready,
                return_total=member.return_total,
                digest="",
            )
            for member in members
        ),
        tags=tuple(rows[0].get("group_tags", ())),
        closed=True,
        ready=True,
        last_progress_us=rows[0].get("group_progress_us", max(row["received_us"] for row in rows)),
    )


def _step(row: DatasetRow, call: CallCaptured, at: FactPosition) -> StepRecord:
    """Returns the step that the pool has of the call, with the export's decision about it.

    A reply without the engine's ids can be imitated by its messages alone, which are not read here. Exports of 0.1 do not
    tell what a prompt is written against.
    """
    capture = captured(StepState(), call, at).capture
    assert capture is not None  # the call's own
    judged = row["quality"] is not None or row["scores"] or row["curation_tags"]
    scores = {each["scorer"]: each["score"] for each in row["scores"]}
    out = "no_ids_in_dataset" if ID_FLAWS & {*row["reasons"]} else None if row["trained"] else "not_trained_in_dataset"
    return replace(
        capture,
        timings=None,  # the dataset has the begin of a call, which puts it in its place, and not its end
        tags=call.tags,  # what it was for, too, as all calls of its trajectory told
        base_call_id=row.get("base_call_id"),
        base_keep=row.get("base_keep", 0),
        trainable=out is None,
        reasons=() if out is None else (*row["reasons"], out),
        rewards=_slots(row["rewards"], row["call_id"]),
        reward_total=row["reward_total"],
        curation=Curation(quality=row["quality"], tags=tuple(row["curation_tags"]), scores=scores) if judged else None,
    )


def _slots(rewards: Sequence[DatasetRow] | None, call_id: str | None) -> tuple[RewardSlot, ...]:
    """Exports before format 4 do not tell when a reward was given: `reward_merge: latest` then takes the highest."""
    return tuple(RewardSlot(call_id=call_id, **{"event_id": "", **each}) for each in rewards or ())


def _call(row: DatasetRow) -> CallCaptured:
    """The fact as far as training reads it; its digest is that of the fact."""
    prompt, response = row["prompt_ids"], row["response_ids"]
    return CallCaptured(
        envelope=envelope("dataset", event_id=row["digest"]),
        prompt=Edge(suffix=prompt, full_length=len(prompt) // 4, full_digest=hashlib.sha256(prompt).hexdigest()),
        spans=tuple(VersionSpan(**span) for span in row["version_spans"]),
        sampling=Sampling(temperature=row["temperature"], top_p=1.0, top_k=0),
        request=Edge(suffix=b"", full_length=0, full_digest=""),
        response_body=b"",
        upstream="",
        http_status=200,
        usage=Usage(prompt_tokens=len(prompt) // 4, completion_tokens=len(response) // 4),
        timings=Timings(received_us=row["received_us"], dispatched_us=0, done_us=0),
        integrity=Integrity(complete=True),
        tags=tuple(row["tags"]),
        **{name: row[name] for name in AS_THEY_ARE},
    )
