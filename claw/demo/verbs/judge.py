"""A judge for verbs: a tiny Qwen3 that says whether a call is the right one, made in code and warmed up in about a minute.

What it learns from is what it will be asked: the questions of `consumers/rewards/llm_judge`, by the rubric beside this
file, with answers by the environment's rule. Its tokenizer has ids for the words of these questions, which so are 170
ids long and not 700.

Invariant: the bytes are a function of (seed, recipe, lessons, libraries), after which the directory is named.
"""

import argparse
import hashlib
import random
from functools import cache
from pathlib import Path
from typing import Any

from claw_r1.claw.demo.models.tiny_model import Recipe, keep, save_warmed_up
from claw_r1.claw.demo.verbs.environment import KEYS, VALUES, VERBS, Task, right_call, right_verb
from claw_r1.claw.demo.verbs.flow import shown
from claw_r1.consumers.rewards.judged import Judged, JudgedCall, JudgedMessage
from claw_r1.consumers.rewards.llm_judge.prompts import questions
from claw_r1.consumers.rewards.llm_judge.rubrics import Rubric, read_rubric

RUBRIC = Path(__file__).with_name("judge.md")
RECIPE = Recipe(steps=200)
MODEL = "verbs-judge"
SLOT = "judge/verbs"
VOCABULARY = 480
CORPUS = 200
NOISE = "abcdefghijklmnopqrstuvwxyz .,:=>|0123456789\n"


def make_judge(cache: Path, seed: int = 0, recipe: Recipe = RECIPE) -> Path:
    """The model's directory under `cache`, made when it is not there yet. Safe when several processes ask at once."""
    return keep(cache / f"verbs-judge-qwen3-seed{seed}-{_digest(recipe)}", lambda out: build(out, seed, recipe))


def scorers(url: str, **settings: Any) -> dict[str, Any]:
    """Returns the judge's part of a rewards.yaml: the settings of its slot. url: the gateway's; `settings` replace
    single ones, hence Any."""
    judge = {"use": "judge", "version": 1, "scope": "call", "rubric": str(RUBRIC), "model": MODEL, "url": url}
    return {"scorers": {SLOT: {**judge, "max_tokens": 4, **settings}}}


def build(out: Path, seed: int, recipe: Recipe) -> None:
    """Makes, warms up and saves model and tokenizer in Hugging Face's format into the existing directory `out`."""
    from claw_r1.claw.demo.models.tokenizer import build_tokenizer

    rng = random.Random(seed)
    corpus = [message["content"] for _ in range(CORPUS) for message in lesson(rng)]
    save_warmed_up(out, build_tokenizer(corpus, VOCABULARY), seed, recipe, lesson)


def lesson(rng: random.Random) -> list[dict[str, str]]:
    """A question, and the answer by the rule."""
    subject = call_of(rng, right=rng.random() < 0.5)
    return [*question(subject), {"role": "assistant", "content": str(int(is_right(subject)))}]


@cache
def rubric() -> Rubric:
    """Returns the rubric that the judge gets."""
    return read_rubric(RUBRIC)


def question(subject: Judged) -> list[dict[str, str]]:
    """Returns the question as the judge gets it."""
    (one,) = questions(subject, rubric(), opponents_max=1, both_ways=True, task=False)
    return one.messages


def call_of(rng: random.Random, *, right: bool) -> Judged:
    """A call somewhere in an episode that was played right before it."""
    task = Task.from_seed(rng.getrandbits(32))
    observations = task.observations[: rng.randrange(len(task.observations)) + 1]
    messages: list[JudgedMessage] = []
    for index, observation in enumerate(observations):
        messages += [dict(shown(index, observation)), {"role": "assistant", "content": right_call(observation)}]
    reply = right_call(observations[-1]) if right else wrong_call(observations[-1], rng)
    return subject_of(messages[:-1], reply)


def subject_of(messages: list[JudgedMessage], reply: str) -> Judged:
    """A call as scorers see it."""
    call = JudgedCall(call_id="call", messages=tuple(messages), reply={"role": "assistant", "content": reply})
    return Judged(scope="call", group_id="group", trajectory_id="trajectory", calls=(call,))


def is_right(subject: Judged) -> bool:
    """The environment's rule: of the last observation."""
    (call,) = subject.calls
    return call.reply is not None and bool(call.reply["content"] == right_call(call.messages[-1]["content"]))


def wrong_call(observation: str, rng: random.Random) -> str:
    """Returns a wrong call for a policy to make: mostly another verb, sometimes another argument, noise, or the right
    call with more behind it."""
    right, argument = right_verb(observation), observation[-1]
    verb = rng.choice([verb for verb in VERBS if verb != right])
    other = rng.choice([key for key in KEYS + VALUES if key != argument])
    noise = "".join(rng.choices(NOISE, k=rng.randint(1, 40)))
    kinds = (f"{verb} {argument}", f"{right} {other}", f"{verb} {other}", right_call(observation) + noise, noise[:8])
    call: str = rng.choices(kinds, (5, 2, 1, 1, 1))[0]
    return call


def _digest(recipe: Recipe) -> str:
    """12 hex digits: as the demo's model, and of lessons, which show what the questions are."""
    dice = random.Random(0)
    lessons = [lesson(dice) for _ in range(50)]
    return hashlib.sha256(f"{recipe.digest([*Path(__file__).parent.glob('*.py')])} {lessons}".encode()).hexdigest()[:12]


def main(argv: list[str] | None = None) -> int:
    """Print the path of the model's directory."""
    parser = argparse.ArgumentParser(
        prog="python -m claw_r1.claw.demo.verbs.judge", description="The judge of the demo."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps such models, one directory each")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the lessons")
    options = parser.parse_args(argv)
    print(make_judge(options.out, options.seed).resolve())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
