"""`claw export`: a dataset out of the facts, from a spec or again from a manifest. It writes files and
nothing to the log."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

from pydantic import ValidationError

from claw_r1.claw.answers import Answer, Answers
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.data.settings import ExportSettings
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import claw_home
from claw_r1.claw.keys.terms import duration_us
from claw_r1.claw.notice import Progress
from claw_r1.consumers.export.export import export, reproduce
from claw_r1.consumers.export.follow import GrowingDataset
from claw_r1.consumers.export.manifest import NAME, DatasetManifest, load
from claw_r1.consumers.export.offsets import Bound, resolve
from claw_r1.consumers.export.pairs import PairSettings
from claw_r1.datapool.batch.spec import load as load_spec
from claw_r1.eventlog.records import Place
from claw_r1.runtime.files import write_atomically
from claw_r1.runtime.stop_signals import Interrupts

PROGRESS = "claw export: {done} facts read of at most {total}"


def run_export(request: ExportSettings) -> Answers:
    """Exports; exit code 1 when a manifest gave other bytes. Raises CannotRun, ConsumerError, BatchSpecInvalid, LogError."""
    if request.follow:
        return _follow(request)
    if request.manifest is not None and request.spec is not None:
        raise CannotRun("a manifest names its spec: give --manifest or --spec, not both")
    differ = _export(request)
    dataset = load(request.out)
    remember(dataset, request.out)
    answer = {"id": dataset.id, "out": str(request.out), "differ": differ, "manifest": dataset.model_dump(mode="json")}
    return Answer(answer, as_text(dataset, request.out, differ), 1 if differ else 0)


def remember(manifest: DatasetManifest, out: Path) -> None:
    """Keeps the manifest and, a line each, where datasets of it are, so that a lost one can be made again, and none is
    forgotten when its words must be gone."""
    kept = claw_home() / "datasets" / manifest.id
    kept.mkdir(parents=True, exist_ok=True)
    write_atomically(kept / NAME, manifest.to_bytes().decode())
    path, line = kept / "path", f"{out.resolve()}\n"
    with path.open("a+") as file:  # which two exports may do at once
        file.seek(0)
        if line not in file.readlines():
            file.write(line)


def _export(request: ExportSettings) -> list[str]:
    """The files that differ from the manifest's, if there is one."""
    pairs, manifest = pairs_of(request), None if request.manifest is None else load(request.manifest)
    spec = None if request.spec is None else load_spec(request.spec)
    with log_for_reading(request.prefix if manifest is None else manifest.prefix) as settings:
        if manifest is not None:
            return reproduce(settings, manifest, request.out, Progress(PROGRESS))
        vector = resolve(settings, bound(request.start), bound(request.end))
        export(settings, vector, spec, request.out, Progress(PROGRESS), pairs)
    return []


def _follow(request: ExportSettings) -> Iterator[Answer]:
    """Yields an answer for each part, until SIGTERM."""
    bounds = (request.start, request.end, request.format)
    if request.manifest is not None or bounds != ("beginning", "end", "steps") or pairs_of(request) is not None:
        raise CannotRun("--follow takes --spec and --every alone: it begins at the beginning, and writes steps")
    every_s, interrupts = duration_us(request.every) / 1e6, Interrupts()
    spec = None if request.spec is None else load_spec(request.spec)
    with (
        suppress(KeyboardInterrupt),
        log_for_reading(request.prefix) as settings,
        closing(GrowingDataset(settings, spec, request.out, Progress(PROGRESS))) as growing,
    ):
        is_remembered = False
        while True:
            part = growing.part(every_s)
            if not is_remembered and growing.first.exists():  # an earlier process may have been killed just before this
                remember(load(growing.first), request.out)
                is_remembered = True
            if part is not None:
                yield Answer({"id": part.id, "counts": part.counts}, as_text(part, request.out, []))
            time.sleep(every_s)
            interrupts.check()


def pairs_of(request: ExportSettings) -> PairSettings | None:
    """Returns the settings that make the pairs; None: no pairs. Raises CannotRun."""
    options = {
        "sources": request.pairs,
        "preference": request.preference,
        "margin": request.margin,
        "slot": request.slot,
    }
    named = {name: value for name, value in options.items() if value is not None}
    if request.format not in ("steps", "dpo"):
        raise CannotRun(f"--format is steps or dpo, not {request.format}")
    if request.format == "steps" and named:
        raise CannotRun("--pairs, --preference, --margin and --slot are of --format dpo")
    if request.manifest is not None and request.format == "dpo":
        raise CannotRun("a manifest names its format: give --manifest or --format, not both")
    if {"margin", "slot"} & named.keys() and "rewards" not in (request.pairs or ()):
        raise CannotRun("--margin and --slot are of pairs from rewards: --pairs rewards")
    try:
        return PairSettings.model_validate(named) if request.format == "dpo" else None
    except ValidationError as error:
        raise CannotRun(f"--pairs: {error.errors()[0]['msg']}") from error


def bound(text: str) -> Bound:
    """A word, an offset, or the ends of the manifest in a file. Raises ManifestInvalid."""
    if text.isdecimal():
        return int(text)
    return ends_of(load(Path(text))) if Path(text).exists() else text


def ends_of(manifest: DatasetManifest) -> Mapping[Place, int]:
    """Returns the offsets where a dataset ends: a later one may begin there."""
    return {place: end for place, (_, end) in manifest.vector.ranges.items()}


def as_text(dataset: DatasetManifest, out: Path, differ: list[str]) -> str:
    """The dataset in a few lines."""
    counts = dataset.counts
    lines = [
        f"dataset {dataset.id} in {out}",
        f"  {counts['groups']} of {counts['groups_seen']} groups, {counts['trajectories']} trajectories",
        f"  {counts['pairs']} pairs"
        if "pairs" in counts
        else f"  {counts['steps']} steps, {counts['sequences']} sequences",
    ]
    lines += [f"  left out {count:>6}  {reason}" for reason, count in sorted(dataset.left_out.items())]
    lines += [f"  no fact  {count:>6}  {reason}" for reason, count in sorted(dataset.unreadable.items())]
    lines += [f"  {name:<18} {entry.bytes:>12} bytes  sha256 {entry.sha256}" for name, entry in dataset.files.items()]
    lines += [f"  DIFFERS from the manifest: {name}" for name in differ]
    return "\n".join(lines)
