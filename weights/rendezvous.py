"""Where the two ranks of one transfer meet. Plain values: they pass through HTTP and vLLM's `update_info` unchanged."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from weights.errors import WeightsError
from weights.manifest import WeightsManifest


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A store and a prefix that nobody else uses; both sides give up `timeout_s` after they start."""

    host: str
    port: int
    prefix: str
    timeout_s: float
    bucket_bytes_max: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """A trainer's answer to one worker: what it sends, and where its sender waits."""

    run_id: str
    version: int
    manifest: WeightsManifest
    rendezvous: Rendezvous

    def to_json(self) -> dict[str, Any]:  # Any: a JSON object
        """Plain values; `from_json` is the inverse."""
        manifest = self.manifest.to_json()
        return {
            "run_id": self.run_id,
            "version": self.version,
            "digest": manifest["digest"],
            "manifest": manifest["tensors"],
            "rendezvous": asdict(self.rendezvous),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:  # Any: a JSON object of another process
        """Raises WeightsError when `value` is no transfer."""
        try:
            manifest = WeightsManifest.from_json({"digest": value["digest"], "tensors": value["manifest"]})
            return cls(
                str(value["run_id"]),
                int(value["version"]),
                manifest,
                Rendezvous(**value["rendezvous"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WeightsError(f"not a transfer: {error!r}") from error
