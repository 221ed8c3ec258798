"""`claw dataset list|diff`: datasets that were exported, by their manifests; those of this machine are kept in its claw home."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from claw_r1.claw.answers import Answer, Answers
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import claw_home
from claw_r1.claw.show.notice import notice
from claw_r1.consumers.export import manifest as manifests
from claw_r1.consumers.export.manifest import DatasetManifest
from claw_r1.runtime.files import write_atomically

COMPARED = tuple(DatasetManifest.model_fields)
"""Everything that the id is made of."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A manifest and where its files were written."""

    manifest: DatasetManifest
    path: Path


def kept() -> Path:
    """Returns the folder where this machine remembers its exports."""
    return claw_home() / "datasets"


def remember(manifest: DatasetManifest, out: Path) -> None:
    """Keep a copy of the manifest, so that `list` finds it and a lost dataset can be made again."""
    kept().mkdir(parents=True, exist_ok=True)
    entry = {"path": str(out.resolve()), "manifest": manifest.model_dump(mode="json")}
    write_atomically(kept() / f"{manifest.id}.json", orjson.dumps(entry, option=orjson.OPT_INDENT_2).decode())


def run_dataset(action: str, names: list[str], directory: Path | None) -> Answers:
    """Carries out one action; exit code 1 when `diff` finds a difference. Raises CannotRun."""
    if action == "list":
        return _list(sorted(datasets(directory), key=lambda dataset: str(dataset.path)))
    if action == "diff" and len(names) == 2:
        left, right = (find(name, directory) for name in names)
        return _diff(left, right)
    raise CannotRun("claw dataset: the actions are `list` and `diff A B`, where A and B are ids or paths")


def datasets(directory: Path | None) -> Iterator[Dataset]:
    """Yields the datasets in a directory and one level below it, or those that this machine remembers."""
    if directory is None:
        for file in sorted(kept().glob("*.json")):
            entry = orjson.loads(file.read_bytes())
            yield Dataset(DatasetManifest.model_validate(entry["manifest"]), Path(entry["path"]))
        return
    for pattern in (manifests.NAME, f"*/{manifests.NAME}"):
        for file in sorted(directory.glob(pattern)):
            yield Dataset(manifests.load(file), file.parent)


def find(name: str, directory: Path | None) -> Dataset:
    """A dataset by its path or the beginning of its id. Raises CannotRun, ManifestInvalid."""
    if Path(name).exists():
        path = Path(name)
        return Dataset(manifests.load(path), path if path.is_dir() else path.parent)
    matches = {dataset.manifest.id: dataset for dataset in datasets(directory) if dataset.manifest.id.startswith(name)}
    if len(matches) != 1:
        raise CannotRun(f"{len(matches)} datasets have an id that begins with {name!r}; `claw dataset list` shows all")
    return next(iter(matches.values()))


def differences(left: DatasetManifest, right: DatasetManifest) -> dict[str, list[Any]]:  # of JSON
    """Path of a field -> its values left and right, of every field that differs."""
    left_json, right_json = left.model_dump(mode="json"), right.model_dump(mode="json")
    return {path: values for field in COMPARED for path, values in _differ(field, left_json[field], right_json[field])}


def _differ(path: str, left: Any, right: Any) -> Iterator[tuple[str, list[Any]]]:  # of JSON
    if left == right:
        return
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            yield from _differ(f"{path}.{key}", left.get(key), right.get(key))
    else:
        yield path, [left, right]


def _list(rows: list[Dataset]) -> Iterator[Answer]:
    if not rows:
        notice("no dataset is known here: `claw export --out DIR` writes one, `--in DIR` looks elsewhere")
        return
    yield Answer(text=f"{'id':<12} {'groups':>8} {'steps':>9} {'sequences':>9} {'pairs':>9}  path")
    for dataset in rows:
        counts = dataset.manifest.counts
        gone = "" if dataset.path.is_dir() else "  (gone; `claw export --manifest` makes it again)"
        yield Answer(
            {"id": dataset.manifest.id, "path": str(dataset.path), "counts": counts},
            f"{dataset.manifest.id:<12} {counts['groups']:>8} {_count(counts, 'steps')} {_count(counts, 'sequences')} {_count(counts, 'pairs')}  "
            f"{dataset.path}{gone}",
        )


def _count(counts: dict[str, int], name: str) -> str:
    """A dataset is of steps and sequences, or of pairs."""
    return f"{counts.get(name, '-'):>9}"


def _diff(left: Dataset, right: Dataset) -> Answer:
    changes = differences(left.manifest, right.manifest)
    lines = [f"{path}: {_short(a)} -> {_short(b)}" for path, (a, b) in changes.items()]
    same = f"{left.manifest.id} and {right.manifest.id} are the same dataset"
    return Answer({"same": not changes, "differences": changes}, lines or same, 1 if changes else 0)


def _short(value: Any) -> str:  # of JSON
    text = orjson.dumps(value).decode()
    return text if len(text) <= 100 else f"{text[:97]}..."
