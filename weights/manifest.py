"""The content of a weights version: a manifest and a digest name its bytes exactly, in order.

Free of torch at import: a supervisor reads manifests and never touches a tensor.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from claw_r1.weights.digests import BLAKE3, Digest
from claw_r1.weights.errors import ManifestMismatch

if TYPE_CHECKING:
    import torch

SHOWN_CHARACTERS = 200
ALIGNMENT_BYTES = 64
"""A tensor in a flat copy begins at a multiple of it, so that it can be viewed as any dtype."""
NamedTensors = Iterable[tuple[str, "torch.Tensor"]]

# Bytes per element by torch's name. A dtype that is missing here cannot travel; better said early than guessed.
ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}


def aligned(count: int, multiple: int) -> int:
    """`count` rounded up to the multiple."""
    return -(-count // multiple) * multiple


@dataclass(frozen=True, slots=True)
class TensorShape:
    """One tensor: its name in the HF checkpoint, torch's name of the dtype, its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the contiguous tensor; raises ManifestMismatch for a dtype that cannot travel."""
        if self.dtype not in ITEM_BYTES:
            raise ManifestMismatch(f"{self.name}: dtype {self.dtype} cannot be sent")
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class WeightsManifest:
    """The tensors of a version in order, and the digest (weights/digests.py) over their
    contiguous bytes in that order."""

    tensors: tuple[TensorShape, ...]
    digest: str

    @property
    def bytes_total(self) -> int:
        """Bytes of all tensors, without padding."""
        return sum(spec.nbytes for spec in self.tensors)

    def offsets(self) -> Iterator[tuple[TensorShape, int]]:
        """Each tensor and where it begins in a flat copy of the version, in bytes."""
        return offsets(self.tensors)

    @property
    def bytes_flat(self) -> int:
        """Bytes of a flat copy, padding included."""
        return bytes_flat(self.tensors)

    @classmethod
    def of(cls, named_tensors: NamedTensors, algorithm: str = BLAKE3) -> Self:
        """The manifest of these tensors, in the order in which they come. Reads every byte."""
        specs: list[TensorShape] = []
        digest = Digest(algorithm)
        for name, tensor in named_tensors:
            specs.append(spec_of(name, tensor))
            digest.update(memory_of(tensor))
        return cls(tuple(specs), digest.text())

    def to_json(self) -> dict[str, object]:
        """Plain values; `from_json` is the inverse."""
        tensors = [{"name": each.name, "dtype": each.dtype, "shape": list(each.shape)} for each in self.tensors]
        return {"tensors": tensors, "digest": self.digest}

    @classmethod
    def from_json(cls, value: dict[str, object]) -> Self:
        """Raises ManifestMismatch when `value` is no manifest."""
        match value:
            case {"tensors": list(tensors), "digest": str(digest)}:
                return cls(tuple(map(_shape, tensors)), digest)
        raise ManifestMismatch(f"not a manifest: {str(value)[:SHOWN_CHARACTERS]}")


def offsets(tensors: Iterable[TensorShape]) -> Iterator[tuple[TensorShape, int]]:
    """Each tensor and where it begins in a flat copy, in bytes."""
    end = 0
    for spec in tensors:
        yield spec, end
        end += aligned(spec.nbytes, ALIGNMENT_BYTES)


def bytes_flat(tensors: Iterable[TensorShape]) -> int:
    """Bytes of a flat copy of these tensors; at least one, for a file of none cannot be mapped."""
    return max(1, sum(aligned(spec.nbytes, ALIGNMENT_BYTES) for spec in tensors))


def _shape(value: object) -> TensorShape:
    match value:
        case {"name": str(name), "dtype": str(dtype), "shape": list(shape) | tuple(shape)} if all(
            type(n) is int for n in shape
        ):
            return TensorShape(name, dtype, tuple(shape))
    raise ManifestMismatch(f"not a tensor of a manifest: {str(value)[:SHOWN_CHARACTERS]}")


def spec_of(name: str, tensor: "torch.Tensor") -> TensorShape:
    """The spec of a tensor that will travel under `name`."""
    return TensorShape(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def memory_of(tensor: "torch.Tensor") -> memoryview:
    """The contiguous bytes of a tensor; a copy only where it is strided or on a device."""
    flat = bytes_of(tensor.detach().cpu())
    return memoryview(flat.numpy())


def bytes_of(tensor: "torch.Tensor") -> "torch.Tensor":
    """A flat uint8 view (or copy, when strided) of any tensor, zero-dimensional ones included."""
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
