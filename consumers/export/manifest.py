"""The description of a dataset: enough to make the same bytes again. A manifest names offsets, never times, and no
machine."""

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from claw_r1.consumers.export.errors import CannotExport, ManifestInvalid
from claw_r1.consumers.export.offsets import OffsetVector
from claw_r1.consumers.export.pairs import PairSettings
from claw_r1.datapool import FOLD_VERSION
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.schemas.avro_files import fingerprint, wire_schema
from claw_r1.schemas.topics import FACTS

NAME = "manifest.json"
FORMAT = 4
"""Counts up when equal facts give other rows."""


class FileEntry(BaseModel):
    """One file of a dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    bytes: int
    rows: int


class DatasetManifest(BaseModel):
    """One dataset. `spec` None: everything that was captured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    prefix: str
    offsets: dict[str, list[list[int]]]
    """Topic -> [start, end) by partition number."""
    spec: dict[str, Any] | None
    fold_version: int = FOLD_VERSION
    schemas: dict[str, str]
    """Fingerprint of each schema that a fact may have."""
    writer: dict[str, str]
    """Libraries that decide bytes, with their versions."""
    counts: dict[str, int]
    """groups, trajectories, and steps and sequences or pairs; groups_seen: before the spec chose."""
    left_out: dict[str, int]
    """Groups that the spec left out, by reason; pairs that did not go out as `pair: <reason>`."""
    unreadable: dict[str, int]
    """Records that were no facts, by reason; facts of groups that an earlier part has."""
    files: dict[str, FileEntry]
    pairs: PairSettings | None = None
    """The settings of a dataset of pairs: what made them."""
    undecided: dict[str, list[list[int]]] | None = None
    """The offsets between which facts of groups lie that no part has yet, of a part of a dataset that grows."""

    @property
    def id(self) -> str:
        """Short name: of the content, so equal datasets have one."""
        return hashlib.sha256(self.to_bytes()).hexdigest()[:12]

    @property
    def vector(self) -> OffsetVector:
        return OffsetVector.from_json(self.offsets)

    @property
    def batch_spec(self) -> BatchSpec | None:
        return None if self.spec is None else BatchSpec.model_validate(self.spec)

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        whole = self.model_dump(mode="json")
        for name in ("pairs", "undecided"):
            if whole[name] is None:
                del whole[name]
        return orjson.dumps(whole, option=options)


def load(path: Path) -> DatasetManifest:
    """A manifest from its file, or from the directory that it stands in. Raises ManifestInvalid with one line."""
    file = path / NAME if path.is_dir() else path
    try:
        manifest = DatasetManifest.model_validate_json(file.read_bytes())
        _ = manifest.vector
    except OSError as error:
        raise ManifestInvalid(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise ManifestInvalid(f"{file} is no manifest of a dataset: {_first_problem(error)}") from error
    return manifest


def _first_problem(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error).splitlines()[0]
    problem = error.errors(include_url=False)[0]
    return ": ".join(filter(None, (".".join(map(str, problem["loc"])), problem["msg"])))


def check_reproducible(manifest: DatasetManifest) -> None:
    """Raises CannotExport when this code would make other rows of the same facts."""
    if manifest.undecided is not None:
        raise CannotExport(
            "a part is what the parts before it left: `claw export --follow` into a new folder makes all again"
        )
    if manifest.format != FORMAT:
        raise CannotExport(f"the manifest is of format {manifest.format}, this is format {FORMAT}")
    if manifest.fold_version != FOLD_VERSION:
        raise CannotExport(f"the manifest is of fold version {manifest.fold_version}, this is {FOLD_VERSION}")


def fact_schemas() -> dict[str, str]:
    """Fingerprints of everything that stands on the fact topics."""
    names = sorted(f"claw.{name}" for topic in FACTS for name in topic.records)
    return {name: fingerprint(wire_schema(name)) for name in names}


def writer() -> dict[str, str]:
    return {"pyarrow": pa.__version__}
