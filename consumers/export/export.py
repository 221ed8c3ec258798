"""The export itself: partition by partition, fold, choose, read the chosen calls again by position, write.

Memory: one partition's folded groups, CALLS_BYTES of calls, and one row group per table.
"""

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from consumers.export import manifest as manifests
from consumers.export.choose import Chosen, choose
from consumers.export.errors import CannotExport
from consumers.export.history import fold_partition
from consumers.export.manifest import DatasetManifest, FileEntry
from consumers.export.offsets import OffsetVector, check_there
from consumers.export.rows import sequence_rows, step_rows
from consumers.export.tables import SEQUENCES, STEPS, TableWriter
from datapool.batch.spec import BatchSpec
from datapool.fold.state import GroupState
from eventlog.kafka.reader import FactLookup
from eventlog.records import Position, Record
from eventlog.settings import LogSettings
from schemas.events import CallCaptured

CALLS_BYTES = 32 << 20
"""Estimated size of the calls that are held at once; a larger trajectory stands alone."""
TOKEN_BYTES = 16  # an id in prompt, response and row, a log-probability, and its share of the bodies
CALL_BYTES = 2048
DIGEST_BLOCK_BYTES = 1 << 20
Progress = Callable[[int, int], None]
"""Facts read, of how many at most."""


@dataclass(slots=True)
class Tally:
    """What went out and what did not."""

    counts: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)


def export(
    settings: LogSettings,
    vector: OffsetVector,
    spec: BatchSpec | None,
    out: Path,
    progress: Progress = lambda _read, _of: None,
) -> DatasetManifest:
    """Writes a dataset into `out`, which is new or empty; it is whole when its manifest is there.

    Raises CannotExport (history cut, directory in use), HistoryCut (cut meanwhile), BrokerUnreachable, TopicMissing.
    """
    check_there(settings, vector)
    tally = Tally()
    with _directory(out) as partial:
        with ExitStack() as stack:
            steps = stack.enter_context(closing(TableWriter(partial / "steps.parquet", STEPS)))
            sequences = stack.enter_context(closing(TableWriter(partial / "sequences.parquet", SEQUENCES)))
            lookup = stack.enter_context(closing(FactLookup(settings)))
            for chosen, calls in _trajectories(settings, vector, spec, lookup, tally, progress):
                for row in step_rows(chosen, calls):
                    steps.write(row)
                for row in sequence_rows(chosen, calls):
                    sequences.write(row)
        tally.counts |= {"steps": steps.rows, "sequences": sequences.rows}
        files = {"steps.parquet": steps.rows, "sequences.parquet": sequences.rows}
        manifest = _manifest(
            settings, vector, spec, tally, {name: _entry(partial / name, n) for name, n in files.items()}
        )
        (partial / manifests.NAME).write_bytes(manifest.to_bytes())
    return manifest


def reproduce(
    settings: LogSettings, manifest: DatasetManifest, out: Path, progress: Progress = lambda _read, _of: None
) -> list[str]:
    """Makes a dataset again from its manifest; the files whose bytes differ, [] when it is the same.

    Raises what `export` raises, and CannotExport for a manifest of another fold or format.
    """
    manifests.check_reproducible(manifest)
    same = settings.model_copy(update={"prefix": manifest.prefix})
    again = export(same, manifest.vector, manifest.batch_spec, out, progress)
    return sorted(name for name in {*again.files, *manifest.files} if again.files.get(name) != manifest.files.get(name))


def _trajectories(
    settings: LogSettings,
    vector: OffsetVector,
    spec: BatchSpec | None,
    lookup: FactLookup,
    tally: Tally,
    progress: Progress,
) -> Iterator[tuple[Chosen, dict[str, CallCaptured]]]:
    read = 0

    def advance(records: int) -> None:
        nonlocal read
        read += records
        progress(read, vector.offsets)

    for partition in range(vector.partitions):
        folded = fold_partition(settings, vector.of_partition(partition), vector.partitions, advance)
        tally.unreadable += folded.unreadable
        for batch in _batches(_chosen(folded.groups.values(), spec, tally)):
            records = lookup.get({position for chosen in batch for position in positions(chosen)})
            yield from ((chosen, _calls(chosen, records)) for chosen in batch)


def _chosen(groups: Iterable[GroupState], spec: BatchSpec | None, tally: Tally) -> Iterator[Chosen]:
    """In the order of the log: by the first captured call of each group."""
    for group in sorted(groups, key=_first_offset):
        tally.counts["groups_seen"] += 1
        choice = choose(group, spec)
        if isinstance(choice, str):
            tally.left_out[choice] += 1
            continue
        tally.counts["groups"] += 1
        tally.counts["trajectories"] += len(choice)
        yield from choice


def _first_offset(group: GroupState) -> tuple[int, str]:
    captures = (step.capture for trajectory in group.trajectories.values() for step in trajectory.steps.values())
    offsets = (at.position.offset for at in captures if at is not None and at.position is not None)
    return min(offsets, default=-1), group.group_id


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


def positions(chosen: Chosen) -> list[Position]:
    """Where the calls of a trajectory lie, in order."""
    return [Position.of(step.position) for step in chosen.steps if step.position is not None]


def _calls(chosen: Chosen, records: dict[Position, Record]) -> dict[str, CallCaptured]:
    events = (records[position].event() for position in positions(chosen))
    return {event.call_id: event for event in events if isinstance(event, CallCaptured)}


def _manifest(
    settings: LogSettings, vector: OffsetVector, spec: BatchSpec | None, tally: Tally, files: dict[str, FileEntry]
) -> DatasetManifest:
    return DatasetManifest(
        prefix=settings.prefix,
        offsets=vector.to_json(),
        spec=None if spec is None else spec.model_dump(mode="json"),
        schemas=manifests.fact_schemas(),
        writer=manifests.writer(),
        counts={name: tally.counts[name] for name in ("groups", "groups_seen", "trajectories", "steps", "sequences")},
        left_out=dict(sorted(tally.left_out.items())),
        unreadable=dict(sorted(tally.unreadable.items())),
        files=files,
    )


def _entry(path: Path, rows: int) -> FileEntry:
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(DIGEST_BLOCK_BYTES):
            sha.update(block)
    return FileEntry(sha256=sha.hexdigest(), bytes=path.stat().st_size, rows=rows)


@contextmanager
def _directory(out: Path) -> Iterator[Path]:
    """A place to write; it becomes `out` when everything is written, and goes when something fails."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CannotExport(f"{out} is there already: name a directory that is new or empty")
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.replace(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
