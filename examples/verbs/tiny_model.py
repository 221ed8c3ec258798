"""The demo's model: a Qwen3 of 0.46 million weights, made in code and warmed up in seconds, never downloaded.

Invariant: the bytes are a function of (seed, recipe, libraries); the cached directory is named after exactly these and
appears whole or not at all.
"""

import argparse
import hashlib
import json
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from examples.verbs.demonstrations import VerbShares


@dataclass(frozen=True, slots=True)
class Recipe:
    """Shape and warm-up of the model. The values were found by measurement; the warm-up stops where RL can start."""

    hidden: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    """The smallest that vLLM's attention on CPU serves."""
    positions_max: int = 2048
    init_range: float = 0.08
    """At the usual 0.02, copying the argument takes four times as many steps to learn."""
    tied: bool = False
    """vLLM's CPU build keeps a packed copy of a tied head, which a plain weight update does not reach."""
    steps: int = 100
    batch_dialogues: int = 32
    learning_rate: float = 3e-3
    learning_rate_end_share: float = 0.1
    shares: VerbShares = field(default_factory=VerbShares)

    def digest(self) -> str:
        """12 hex digits over all that decides the bytes: these values, the code of this package, the libraries."""
        content = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode())
        for source in ("demonstrations", "environment", "tiny_model", "tokenizer", "warm_up"):
            content.update(Path(__file__).with_name(f"{source}.py").read_bytes())
        for library in ("torch", "transformers", "tokenizers"):
            content.update(f"{library}=={version(library)}\n".encode())
        return content.hexdigest()[:12]


def ensure(cache: Path, seed: int, recipe: Recipe | None = None) -> Path:
    """The model's directory under `cache`, made when it is not there yet. Safe when several processes ask at once."""
    recipe = recipe or Recipe()
    target = cache / f"verbs-qwen3-seed{seed}-{recipe.digest()}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=cache))
    try:
        build(draft, seed, recipe)
        _move_into_place(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _move_into_place(draft: Path, target: Path) -> None:
    """Rename; where another process was faster, its directory stays (the bytes are the same)."""
    draft.chmod(0o755)
    try:
        draft.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def build(out: Path, seed: int, recipe: Recipe) -> None:
    """Make, warm up and save model and tokenizer in Hugging Face's format into the existing directory `out`."""
    # torch costs seconds to import, and a cached model needs none of it.
    from examples.verbs.tokenizer import build_tokenizer
    from examples.verbs.warm_up import warmed_up_model

    tokenizer = build_tokenizer()
    warmed_up_model(tokenizer, seed, recipe).save_pretrained(out)
    tokenizer.save_pretrained(out)
    for path in out.iterdir():
        path.chmod(0o644)  # safetensors writes for its owner only


def main(argv: list[str] | None = None) -> int:
    """Print the path of the model's directory."""
    parser = argparse.ArgumentParser(prog="python -m examples.verbs.tiny_model", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps such models, one directory each")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    print(ensure(options.out, options.seed))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
