"""A tiny reward model of the demo's task: Qwen3 for sequence classification, one label, made and trained in code in seconds.

Its logit, at the end of a reply, says whether every call so far was the right one: over 0 it was. Nothing of the policy is in
it: it learns from episodes that are drawn here, with the faults that a policy makes, and is never downloaded.
Invariant: the bytes are a function of (seed, this folder's code, libraries), as of `claw_r1.claw.demo.models.tiny_model`.
"""

import argparse
import random
from dataclasses import dataclass
from pathlib import Path

from claw_r1.claw.demo.models.tiny_model import Recipe, keep
from claw_r1.claw.demo.verbs.environment import KEYS, VALUES, VERBS, Task, right_call

SHAPE = Recipe(hidden=64, heads=2, kv_heads=2, init_range=0.2, steps=450, batch_dialogues=64, learning_rate=3e-3)
NOISE = "abcdefgh12345678 getsayhopaskfind>="


@dataclass(frozen=True, slots=True)
class LabelledEpisode:
    """A conversation that ends with a reply. `faultless[n]`: whether the first n+1 replies were right."""

    messages: list[dict[str, str]]
    faultless: list[bool]

    @property
    def solved(self) -> bool:
        """Of an episode that was played to its end: whether it returned 1."""
        return self.faultless[-1]


def labelled_episode(rng: random.Random) -> LabelledEpisode:
    """Played to its end, which is a fault in half of them."""
    observations = Task.from_seed(rng.getrandbits(32)).observations
    fault_at = rng.randrange(len(observations)) if rng.random() < 0.5 else None
    messages, faultless = list[dict[str, str]](), list[bool]()
    for index, observation in enumerate(observations):
        reply = _fault(observation, rng) if index == fault_at else right_call(observation)
        messages.append({"role": "tool" if index else "user", "content": observation})
        messages.append({"role": "assistant", "content": reply})
        faultless.append(index != fault_at)
        if index == fault_at:
            break
    return LabelledEpisode(messages, faultless)


def _fault(observation: str, rng: random.Random) -> str:
    """Something else than the right call: another verb, as a policy takes, another argument, or noise."""
    right = right_call(observation)
    verb, argument = right.split(" ")
    kind = rng.random()
    if kind < 0.4:
        reply = f"{rng.choice(VERBS)} {argument}"
    elif kind < 0.75:
        reply = f"{verb} {rng.choice(KEYS + VALUES)}"
    elif kind < 0.85:
        reply = f"{rng.choice(VERBS)} {rng.choice(KEYS + VALUES)}"
    elif kind < 0.95:
        place = rng.randrange(len(right) + 1)
        reply = right[:place] + rng.choice(["", rng.choice(NOISE)]) + right[place + rng.randint(0, 1) :]
    else:
        reply = "".join(rng.choice(NOISE) for _ in range(rng.randint(0, 7)))
    return reply if reply != right else _fault(observation, rng)


def make_reward_model(directory: Path, seed: int = 0, recipe: Recipe = SHAPE) -> None:
    """Saves model and tokenizer in Hugging Face's format into the existing directory; takes less than a minute on one core."""
    # torch costs seconds to import, and a model that is kept needs none of it.
    from claw_r1.claw.demo.models.tokenizer import build_tokenizer
    from claw_r1.claw.demo.verbs.reward_training import trained_reward_model

    tokenizer = build_tokenizer()
    trained_reward_model(tokenizer, seed, recipe).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    for path in directory.iterdir():
        path.chmod(0o644)  # safetensors writes for its owner only


def ensure(cache: Path, seed: int = 0, recipe: Recipe = SHAPE) -> Path:
    """The model's directory under `cache`, made when it is not there yet."""
    target = cache / f"verbs-reward-seed{seed}-{recipe.digest([*Path(__file__).parent.glob('*.py')])}"
    return keep(target, lambda draft: make_reward_model(draft, seed, recipe))


def main() -> int:
    """Print the path of the model's directory."""
    parser = argparse.ArgumentParser(prog="python -m claw_r1.claw.demo.verbs.reward_model", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps such models, one directory each")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the episodes")
    options = parser.parse_args()
    print(ensure(options.out, options.seed).resolve())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
