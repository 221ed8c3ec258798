"""Two environments trained in one run, beside each alone.

`python -m bench.trainer --only environments`. Alone, each learns from
its own model. For both one model is warmed up on the demonstrations of
both, each shown as often as its own model sees it; it is trained by
`spec.environments`, in batches that have the groups of the two single
ones. So each environment plays as many episodes together as alone, in
as many optimizer steps, at the demo's settings.

By environment, means of five batches over the seeds: `first` and
`together` of the run of both, at its beginning and end, `alone` at the
end of its own run. `behind`: the most by which one together is below
itself alone. `behind_worst`: the same of a single seed.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch

from bench import verbs
from bench.environments.courses import COURSES, MEMBERS
from bench.in_process import InProcessLoop
from bench.report import Figures
from claw_r1.claw.demo.models.tiny_model import Demonstration, Recipe, build, ensure, keep
from claw_r1.claw.home import claw_home
from claw_r1.trainer.compose import learner_of

PAIR = ("verbs", "castle")
WINDOW = 5
Curves = dict[str, list[float]]
"""Environment -> reward by batch."""


def measure(seeds: int, batches: int) -> Figures:
    """Figures of the pair."""
    torch.set_num_threads(1)
    return {"environments": figures_of([curves(PAIR, seed, batches) for seed in range(seeds)])}


def curves(names: Sequence[str], seed: int, batches: int) -> tuple[Curves, Curves]:
    """Returns what each earns alone, and together."""
    alone: Curves = {}
    for name in names:
        alone |= learned([name], seed, batches)
    return alone, learned(names, seed, batches)


def learned(names: Sequence[str], seed: int, batches: int) -> Curves:
    """Returns the rewards of one run, by environment."""
    model = model_of(names, seed)
    groups = {name: COURSES[name].groups for name in names}
    total = sum(groups.values())
    spec = {
        "groups_per_batch": total,
        "group_size": MEMBERS,
        "environments": {name: count / total for name, count in groups.items()},
    }
    tasks = {name: COURSES[name].tasks for name in names}
    tokens_max = max(course.new_tokens_max for course in COURSES.values())
    with verbs.settings(seed, spec, model_dir=model) as settings:
        learner = learner_of(settings)
        loop = InProcessLoop(settings, learner, tasks, new_tokens_max=tokens_max)
        for _ in range(batches):
            loop.round()
            last = {name: f"{rewards[-1]:.3f}" for name, rewards in loop.rewards_of.items()}
            print(f"seed {seed}, batch {len(loop.rewards)}: {last}", file=sys.stderr, flush=True)
    return loop.rewards_of


def figures_of(seeds: Sequence[tuple[Curves, Curves]]) -> Figures:
    """Returns what is printed of the curves of each seed, alone and together."""
    figures = {
        name: {
            "first": _mean(together[name][:WINDOW] for _, together in seeds),
            "alone": _mean(alone[name][-WINDOW:] for alone, _ in seeds),
            "together": _mean(together[name][-WINDOW:] for _, together in seeds),
        }
        for name in seeds[0][1]
    }
    behind = max(figure["alone"] - figure["together"] for figure in figures.values())
    worst = max(
        _mean([alone[name][-WINDOW:]]) - _mean([both[name][-WINDOW:]]) for alone, both in seeds for name in both
    )
    return {**figures, "behind": behind, "behind_worst": worst}


def _mean(windows: Iterable[Sequence[float]]) -> float:
    return fmean(map(fmean, windows))


def model_of(names: Sequence[str], seed: int) -> Path:
    """Returns the model that has seen all demonstrations.

    It is made where it is not kept. Of one environment it is its own.
    """
    models = claw_home() / "cache" / "models"
    shown = [COURSES[name].demonstrations for name in names]
    if len(shown) == 1:
        return ensure(models, shown[0], seed)
    recipe = joint_recipe([one.RECIPE for one in shown])
    code = [Path(__file__)]
    for one in shown:
        code += Path(str(one.__file__)).parent.glob("*.py")
    name = f"{'-'.join(names)}-qwen3-seed{seed}-{recipe.digest(code)}"
    target = models / name
    often = {one.demonstration: dialogues(one.RECIPE) for one in shown}
    return keep(target, lambda draft: build(draft, seed, recipe, joint_demonstration(often)))


def joint_recipe(recipes: Sequence[Recipe]) -> Recipe:
    """Returns one of the steps and the dialogues of all; its shape is the first one's."""
    steps = sum(recipe.steps for recipe in recipes)
    each = -(-sum(map(dialogues, recipes)) // steps)
    return replace(recipes[0], steps=steps, batch_dialogues=each)


def dialogues(recipe: Recipe) -> int:
    """Returns the dialogues of a whole warm-up."""
    return recipe.steps * recipe.batch_dialogues


def joint_demonstration(often: Mapping[Demonstration, int]) -> Demonstration:
    """Returns a demonstration that is one of them, in these proportions."""
    return lambda rng: rng.choices(list(often), list(often.values()))[0](rng)
