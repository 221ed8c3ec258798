"""The export itself: partition by partition, fold, choose, read the chosen calls again by position, write.

Memory: one partition's folded groups, CALLS_BYTES of calls, and one row group per table.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path

from claw_r1.consumers.export import manifest as manifests
from claw_r1.consumers.export.choose import Chosen
from claw_r1.consumers.export.dpo import write_pairs
from claw_r1.consumers.export.errors import CannotExport
from claw_r1.consumers.export.history_scan import ExportProgress, Tally, calls_of, chosen_groups, partitions, positions
from claw_r1.consumers.export.manifest import DatasetManifest, FileEntry
from claw_r1.consumers.export.offsets import OffsetVector, check_there
from claw_r1.consumers.export.pairs import PairSettings
from claw_r1.consumers.export.rows import sequence_rows, step_rows
from claw_r1.consumers.export.tables import SEQUENCES, STEPS, TableWriter
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.eventlog.kafka.acls import check_access
from claw_r1.eventlog.kafka.reader import FactLookup
from claw_r1.eventlog.locks import take_lock
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.files import sync

CALLS_BYTES = 32 << 20
"""Estimated size of the calls held at once; a larger trajectory is processed alone."""
TOKEN_BYTES = 16  # an id in prompt, response and row, a log-probability, and its share of the bodies
CALL_BYTES = 2048
DIGEST_BLOCK_BYTES = 1 << 20
COUNTS, TABLES = ("groups", "groups_seen", "trajectories"), ("steps", "sequences")


def export(
    settings: LogSettings,
    vector: OffsetVector,
    spec: BatchSpec | None,
    out: Path,
    progress: ExportProgress = lambda _read, _of: None,
    pairs: PairSettings | None = None,
) -> DatasetManifest:
    """Writes a dataset into `out`, which is new or empty; it is whole when its manifest is there.

    pairs: write pairs for DPO instead of steps and sequences.

    Raises CannotExport (history cut, directory in use), HistoryCut (cut meanwhile), BrokerUnreachable, TopicMissing.
    """
    check_access(settings, "export")
    check_there(settings, vector)
    tally = Tally()
    with new_directory(out) as partial:
        if pairs is None:
            files = _write_steps(settings, vector, spec, partial, tally, progress)
        else:
            files = write_pairs(settings, vector, spec, pairs, partial, tally, progress)
        entries = {name: file_entry(partial / name, rows) for name, rows in files.items()}
        manifest = manifest_of(settings, vector, spec, pairs, tally, entries)
        (partial / manifests.NAME).write_bytes(manifest.to_bytes())
    return manifest


def reproduce(
    settings: LogSettings, manifest: DatasetManifest, out: Path, progress: ExportProgress = lambda _read, _of: None
) -> list[str]:
    """Recreates a dataset from its manifest; returns the files whose bytes differ, [] if none do.

    Raises what `export` raises, and CannotExport for a manifest of another fold or format.
    """
    manifests.check_reproducible(manifest)
    same = settings.model_copy(update={"prefix": manifest.prefix})
    again = export(same, manifest.vector, manifest.batch_spec, out, progress, manifest.pairs)
    return sorted(name for name in {*again.files, *manifest.files} if again.files.get(name) != manifest.files.get(name))


def _write_steps(
    settings: LogSettings,
    vector: OffsetVector,
    spec: BatchSpec | None,
    folder: Path,
    tally: Tally,
    progress: ExportProgress,
) -> dict[str, int]:
    """Writes steps and sequences; rows by file."""
    with closing(StepTables(settings, folder)) as tables:
        for folded in partitions(settings, vector, tally, progress):
            tables.write(chosen_groups(folded.groups.values(), spec, tally))
    return tables.files(tally)


class StepTables:
    """Writes the two tables of calls."""

    def __init__(self, settings: LogSettings, folder: Path) -> None:
        self._steps = TableWriter(folder / "steps.parquet", STEPS)
        self._sequences = TableWriter(folder / "sequences.parquet", SEQUENCES)
        self._lookup = FactLookup(settings)

    def write(self, groups: Iterable[list[Chosen]]) -> None:
        """Reads the calls of these trajectories and writes their rows. Raises HistoryCut."""
        for batch in _batches(chain.from_iterable(groups)):
            records = self._lookup.get({position for chosen in batch for position in positions(chosen)})
            for chosen in batch:
                calls = calls_of(chosen, records)
                for row in step_rows(chosen, calls):
                    self._steps.write(row)
                for row in sequence_rows(chosen, calls):
                    self._sequences.write(row)

    def close(self) -> None:
        for each in (self._steps, self._sequences, self._lookup):
            each.close()

    def files(self, tally: Tally) -> dict[str, int]:
        """Counts the rows; rows by file."""
        tally.counts |= {"steps": self._steps.rows, "sequences": self._sequences.rows}
        return {"steps.parquet": self._steps.rows, "sequences.parquet": self._sequences.rows}


def _batches(chosen: Iterable[Chosen]) -> Iterator[list[Chosen]]:
    batch: list[Chosen] = []
    size = 0
    for trajectory in chosen:
        more = sum(CALL_BYTES + TOKEN_BYTES * (s.prompt_length + s.response_length) for s in trajectory.steps)
        if batch and size + more > CALLS_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(trajectory)
        size += more
    if batch:
        yield batch


def manifest_of(
    settings: LogSettings,
    vector: OffsetVector,
    spec: BatchSpec | None,
    pairs: PairSettings | None,
    tally: Tally,
    files: dict[str, FileEntry],
) -> DatasetManifest:
    return DatasetManifest(
        prefix=settings.prefix,
        offsets=vector.to_json(),
        spec=None if spec is None else spec.model_dump(mode="json"),
        schemas=manifests.fact_schemas(),
        writer=manifests.writer(),
        counts={name: tally.counts[name] for name in (*COUNTS, *(TABLES if pairs is None else ("pairs",)))},
        left_out=dict(sorted(tally.left_out.items())),
        unreadable=dict(sorted(tally.unreadable.items())),
        files=files,
        pairs=pairs,
    )


def file_entry(path: Path, rows: int) -> FileEntry:
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(DIGEST_BLOCK_BYTES):
            sha.update(block)
    return FileEntry(sha256=sha.hexdigest(), bytes=path.stat().st_size, rows=rows)


@contextmanager
def new_directory(out: Path, beside: Path | None = None) -> Iterator[Path]:
    """A place to write; it becomes `out` when everything is written and on disk, and goes when something fails. beside: where
    it lies meanwhile; default: `out`. Raises CannotExport, also when another process writes there."""
    whole = out.resolve()
    if not whole.name or whole == Path.cwd():  # who stands in a folder that is replaced stands in one that is gone
        raise CannotExport(f"{out} cannot be replaced: name a directory below it that is new or empty")
    out, partial = whole, (beside or whole).with_name(f".{whole.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    lock_path = partial.with_suffix(".lock")
    if (lock := take_lock(lock_path)) is None:
        raise CannotExport(f"{out} is written by another process")
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise CannotExport(f"{out} is there already: name a directory that is new or empty")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        if partial.exists():
            for path in [*partial.iterdir(), partial]:
                sync(path)
            partial.replace(out)
            sync(out.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        lock_path.unlink(missing_ok=True)
        os.close(lock)
