"""The models of the examples: a Qwen3 of 0.46 million weights, made in code and warmed up in seconds, never downloaded.

Invariant: the bytes are a function of (environment, seed, recipe, libraries); the cached directory is named after exactly
these and appears whole or not at all.
"""

import argparse
import hashlib
import importlib
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ENVIRONMENTS = ("verbs", "calculator", "castle")
"""Folders beside this file whose `demonstrations.py` has `RECIPE` and `demonstration`."""
Demonstration = Callable[[random.Random], list[dict[str, str]]]
"""A whole conversation on a random task, of which the warm-up imitates what the assistant says."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Shape and warm-up of a model. The values were found by measurement; the warm-up stops where RL can start."""

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

    def digest(self, environment: str) -> str:
        """12 hex digits over all that decides the bytes: these values, the code of both folders, the libraries."""
        content = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode())
        here = Path(__file__).parent
        for source in sorted([*here.glob("*.py"), *(here / environment).glob("*.py")]):
            content.update(source.read_bytes())
        for library in ("torch", "transformers", "tokenizers"):
            content.update(f"{library}=={version(library)}\n".encode())
        return content.hexdigest()[:12]


def ensure(cache: Path, environment: str, seed: int, recipe: Recipe | None = None) -> Path:
    """The model's directory under `cache`, made when it is not there yet. Safe when several processes ask at once."""
    demonstrations = importlib.import_module(f"examples.{environment}.demonstrations")
    recipe = recipe or demonstrations.RECIPE
    target = cache / f"{environment}-qwen3-seed{seed}-{recipe.digest(environment)}"
    return keep(target, lambda draft: build(draft, seed, recipe, demonstrations.demonstration))


def keep(target: Path, make: Callable[[Path], None]) -> Path:
    """`target`, which `make` fills where it is not there yet: whole or not at all, also when several processes ask at once."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        make(draft)
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


def build(out: Path, seed: int, recipe: Recipe, demonstration: Demonstration) -> None:
    """Make, warm up and save model and tokenizer in Hugging Face's format into the existing directory `out`."""
    # torch costs seconds to import, and a cached model needs none of it.
    from examples.tokenizer import build_tokenizer

    save_warmed_up(out, build_tokenizer(), seed, recipe, demonstration)


def save_warmed_up(
    out: Path, tokenizer: "PreTrainedTokenizerFast", seed: int, recipe: Recipe, demonstration: Demonstration
) -> None:
    """As `build`, of another tokenizer that marks who speaks."""
    from examples.warm_up import warmed_up_model

    warmed_up_model(tokenizer, seed, recipe, demonstration).save_pretrained(out)
    tokenizer.save_pretrained(out)
    for path in out.iterdir():
        path.chmod(0o644)  # safetensors writes for its owner only


def main(argv: list[str] | None = None) -> int:
    """Print the path of the model's directory."""
    parser = argparse.ArgumentParser(prog="python -m examples.tiny_model", description=__doc__)
    parser.add_argument("environment", choices=ENVIRONMENTS, help="what the warm-up's demonstrations are of")
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps such models, one directory each")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the demonstrations")
    options = parser.parse_args(argv)
    print(ensure(options.out, options.environment, options.seed).resolve())  # for a link, which may lie anywhere
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
