"""The models of the demo and the examples: a Qwen3 of 0.46 million weights, made in code and warmed up in seconds.

Invariant: the bytes are a function of (demonstrations, seed, recipe, libraries); the cached directory is named after exactly
these and appears whole or not at all.
"""

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from claw_r1.claw.errors import CannotRun

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

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

    def digest(self, code: Sequence[Path] = ()) -> str:
        """12 hex digits over all that decides the bytes: these values, this folder's code and that of `code`, the libraries."""
        content = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode())
        for source in sorted([*Path(__file__).parent.glob("*.py"), *code]):
            content.update(source.read_bytes())
        for library in ("torch", "transformers", "tokenizers"):
            content.update(f"{library}=={version(library)}\n".encode())
        return content.hexdigest()[:12]


def ensure(cache: Path, demonstrations: ModuleType, seed: int, recipe: Recipe | None = None) -> Path:
    """The model's directory under `cache`, made when it is not there yet. Safe when several processes ask at once.

    demonstrations: a module with `demonstration` and, where `recipe` is None, `RECIPE`.
    """
    recipe = recipe or demonstrations.RECIPE
    name, code = _origin(demonstrations)
    target = cache / f"{name}-qwen3-seed{seed}-{recipe.digest(code)}"
    return keep(target, lambda draft: build(draft, seed, recipe, demonstrations.demonstration))


def _origin(demonstrations: ModuleType) -> tuple[str, list[Path]]:
    """Returns the name that the model gets, and the files that decide its demonstrations.

    A file `demonstrations.py` is part of its folder; another stands for itself.
    """
    file = Path(str(demonstrations.__file__))
    return (file.parent.name, [*file.parent.glob("*.py")]) if file.stem == "demonstrations" else (file.stem, [file])


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
    from claw_r1.claw.demo.models.tokenizer import build_tokenizer

    save_warmed_up(out, build_tokenizer(), seed, recipe, demonstration)


def save_warmed_up(
    out: Path, tokenizer: "PreTrainedTokenizerFast", seed: int, recipe: Recipe, demonstration: Demonstration
) -> None:
    """Saves a model like `build`, with another tokenizer that marks the roles."""
    from claw_r1.claw.demo.models.warm_up import warmed_up_model

    warmed_up_model(tokenizer, seed, recipe, demonstration).save_pretrained(out)
    tokenizer.save_pretrained(out)
    for path in out.iterdir():
        path.chmod(0o644)  # safetensors writes for its owner only


def loaded(place: str) -> ModuleType:
    """The demonstrations of a module or of a file. Raises CannotRun for what cannot be loaded, or has none."""
    from claw_r1.agentflow.flow import module_named  # a person's modules are found as flows are

    try:
        module = module_named(place)
    except Exception as error:  # foreign code, while it is imported
        raise CannotRun(f"cannot load {place!r}: {type(error).__name__}: {error}") from error
    for name in ("demonstration", "RECIPE"):
        if not hasattr(module, name):
            raise CannotRun(f"{place!r} has no `{name}`: a model is made of `demonstration(rng)` and `RECIPE`")
    return module


def main(argv: list[str] | None = None) -> int:
    """Print the path of the model's directory."""
    parser = argparse.ArgumentParser(prog="python -m claw_r1.claw.demo.models.tiny_model", description=__doc__)
    parser.add_argument("demonstrations", help="module or file.py with `demonstration(rng)` and `RECIPE`")
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps such models, one directory each")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the demonstrations")
    options = parser.parse_args(argv)
    try:
        demonstrations = loaded(options.demonstrations)
    except CannotRun as error:
        print(f"tiny_model: {error}", file=sys.stderr)
        return 2
    print(ensure(options.out, demonstrations, options.seed).resolve())  # for a link, which may lie anywhere
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
