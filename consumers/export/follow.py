"""Exports a growing dataset: parts, each a directory with a manifest, of groups at rest.

Input: the facts, by position. Order: within a part as in every export. Delivery: exactly once. A part appears
as a whole or not at all, and names its decided groups: each is in it, complete, or left out. A replay: a start
continues after the last part. Memory: undecided groups, without their tokens, and the ids of decided ones.
"""

import os
import shutil
import time
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq

from claw_r1.consumers.export import manifest as manifests
from claw_r1.consumers.export.choose import FoldedGroup
from claw_r1.consumers.export.errors import CannotExport
from claw_r1.consumers.export.export import StepTables, file_entry, manifest_of, new_directory
from claw_r1.consumers.export.folded_history import FoldedHistory
from claw_r1.consumers.export.history_scan import ExportProgress, Tally, chosen_groups, partitions
from claw_r1.consumers.export.manifest import DatasetManifest
from claw_r1.consumers.export.offsets import OffsetVector, check_there
from claw_r1.consumers.export.tables import GROUPS, TableWriter
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.state import GroupState
from claw_r1.eventlog.kafka.acls import check_access
from claw_r1.eventlog.kafka.admin import end_offsets, offsets_at
from claw_r1.eventlog.locks import take_lock
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import FACTS

GROUPS_FILE = "groups.parquet"


class GrowingDataset:
    """The parts in a folder, and the groups that none has yet. One process at a time writes it."""

    def __init__(
        self,
        settings: LogSettings,
        spec: BatchSpec | None,
        out: Path,
        progress: ExportProgress = lambda _read, _of: None,
    ) -> None:
        """Goes on behind the last part. Raises CannotExport, ManifestInvalid, HistoryCut, BrokerUnreachable."""
        check_access(settings, "export")
        self._settings, self._spec, self._progress = settings, spec, progress
        self._parts = out / "parts"
        self._parts.mkdir(parents=True, exist_ok=True)
        self.first = self._parts / f"{1:06}"
        if (lock := take_lock(out / ".lock")) is None:
            raise CannotExport(f"{out} is written by another process")
        self._lock = lock
        count = OffsetVector(dict.fromkeys(end_offsets(settings, FACTS), (0, 0))).partitions
        self._decided: set[str] = set()
        self._folded = [FoldedHistory(decided=self._decided) for _ in range(count)]
        self._at: dict[Place, int] = {}
        names = sorted(path for path in self._parts.iterdir() if path.name.isdecimal())
        self._number = int(names[-1].name) if names else 0
        if names:
            self._restore(names)

    def close(self) -> None:
        """Lets another process write."""
        os.close(self._lock)

    def _restore(self, parts: list[Path]) -> None:
        last = manifests.load(parts[-1])
        if (last.format, last.prefix, last.batch_spec) != (manifests.FORMAT, self._settings.prefix, self._spec):
            raise CannotExport(f"{parts[-1]} is of another format, log or spec: follow into a new folder")
        for part in parts:
            self._decided.update(pq.read_table(part / GROUPS_FILE, columns=["group_id"])["group_id"].to_pylist())
        undecided = OffsetVector.from_json(last.undecided or {}).ranges
        self._at = {place: begin for place, (begin, _) in undecided.items()}
        self._read({place: end for place, (_, end) in undecided.items()}, Tally())

    def _read(self, ends: Mapping[Place, int], tally: Tally) -> OffsetVector:
        """Folds the facts up to these offsets; those that were read."""
        vector = OffsetVector({place: (self._at.get(place, 0), end) for place, end in sorted(ends.items())})
        check_there(self._settings, vector)
        for folded in self._folded:
            folded.unreadable.clear()
        deque(partitions(self._settings, vector, tally, self._progress, self._folded), maxlen=0)
        self._at = dict(ends)
        return vector

    def part(self, quiet_s: float) -> DatasetManifest | None:
        """Writes the next part of groups at rest without facts for `quiet_s`, if any. Raises CannotExport, LogError."""
        tally, number = Tally(), self._number + 1
        quiet = offsets_at(self._settings, FACTS, int((time.time() - quiet_s) * 1000))
        vector = self._read(end_offsets(self._settings, FACTS), tally)
        with new_directory(
            self._parts / f"{number:06}", self._parts
        ) as partial:  # whoever reads `parts` sees whole ones
            rows = self._write(partial, quiet, tally)
            if not rows[GROUPS_FILE]:
                shutil.rmtree(partial)
                return None
            files = {name: file_entry(partial / name, count) for name, count in rows.items()}
            manifest = manifest_of(self._settings, vector, self._spec, None, tally, files)
            manifest = manifest.model_copy(update={"undecided": self._undecided().to_json()})
            (partial / manifests.NAME).write_bytes(manifest.to_bytes())
        self._number = number
        return manifest

    def _write(self, folder: Path, quiet: Mapping[Place, int], tally: Tally) -> dict[str, int]:
        """Writes what is due; rows by file."""
        path = folder / GROUPS_FILE
        with closing(StepTables(self._settings, folder)) as tables, closing(TableWriter(path, GROUPS)) as groups:
            for folded in self._folded:
                due = [
                    folded.groups[name]
                    for name, spans in folded.spans.items()
                    if all(last < quiet[place] for place, (_, last) in spans.items())
                    and is_at_rest(folded.groups[name])
                ]
                chosen = list(chosen_groups(due, self._spec, tally))
                tables.write(chosen)
                members = {group[0].group.group_id: len(group) for group in chosen}
                for name in sorted(group.group_id for group in due):
                    groups.write({"group_id": name, "trajectories": members.get(name, 0)})
                    self._decided.add(name)
                    del folded.groups[name], folded.spans[name]
        return tables.files(tally) | {GROUPS_FILE: groups.rows}

    def _undecided(self) -> OffsetVector:
        """The facts that a start reads again: from the first one of a group that no part has."""
        begins = dict(self._at)
        for spans in chain.from_iterable(folded.spans.values() for folded in self._folded):
            begins |= {place: min(begins[place], first) for place, (first, _) in spans.items()}
        return OffsetVector({place: (begin, self._at[place]) for place, begin in begins.items()})


def is_at_rest(group: GroupState) -> bool:
    """Returns whether nothing more is expected of a group but rewards. A declared one that misses something is closed
    by the streams one day."""
    if group.eviction is not None or group.closing is not None:
        return True
    if group.declaration is not None:
        return FoldedGroup(group).record.ready
    members = [member for member in group.trajectories.values() if member.known]
    return bool(members) and all(member.ending.status != "open" for member in members)
