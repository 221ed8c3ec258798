"""Tensors of a manifest read from a HF checkpoint directory: the way for a worker when the trainer is gone."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from weights.errors import ManifestMismatch
from weights.manifest import WeightsManifest, verified

if TYPE_CHECKING:
    import torch


def directory_of(uri: str) -> Path:
    """The local directory that a checkpoint uri names: a plain path or file://. Raises ManifestMismatch otherwise."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        raise ManifestMismatch(f"checkpoint {uri}: only local directories can be read")
    return Path(unquote(parts.path) if parts.scheme else uri)


def read(uri: str, manifest: WeightsManifest) -> Iterator[tuple[str, "torch.Tensor"]]:
    """(name, tensor) in manifest order, verified like a transfer: a checkpoint of other bytes is refused."""
    return verified(_tensors(directory_of(uri), manifest), manifest)


def _tensors(directory: Path, manifest: WeightsManifest) -> Iterator[tuple[str, "torch.Tensor"]]:
    from safetensors import SafetensorError, safe_open

    try:
        with ExitStack() as opened:
            paths = sorted(directory.glob("*.safetensors"))
            files = [opened.enter_context(safe_open(path, framework="pt")) for path in paths]
            holder = {name: file for file in files for name in file.keys()}  # noqa: SIM118  # a file is no mapping
            for spec in manifest.tensors:
                if spec.name not in holder:
                    raise ManifestMismatch(f"{directory} has no tensor {spec.name}")
                yield spec.name, holder[spec.name].get_tensor(spec.name)
    except (OSError, SafetensorError) as error:
        raise ManifestMismatch(f"{directory} cannot be read: {error}") from error
