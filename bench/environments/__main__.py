"""The learning of an environment of `examples/`, and of the demo's: until the mean reward of five batches is above its goal.

In one process: the environment's tiny model, the real folds, plan, rows and learner with the demo's settings, transformers for
the sampling. `reward_first`, `reward_last`: means of five batches, `calls_first`, `calls_last`: of an episode; `batches`: until
the goal, else null. `--seed`: of the model, the tasks and the sampling; `--batches-max 0`: each environment's own bound.
"""

from bench.report import Bench

BENCH = Bench(
    name="environments",
    about=__doc__,
    parts={name: f"bench.environments.courses:{name}" for name in ("verbs", "calculator", "castle")},
    sizes={"seed": 0, "batches_max": 0},
)

if __name__ == "__main__":
    BENCH.main()
