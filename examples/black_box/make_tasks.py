"""Tasks of the verbs game as a file: `python -m examples.black_box.make_tasks --count 256 > tasks.jsonl`."""

import argparse
import json

from claw_r1.claw.demo.verbs.environment import Task


def main() -> None:
    """One JSON object per line; the tasks of the seeds from `--seed` on, without repeats."""
    parser = argparse.ArgumentParser(prog="make_tasks", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=256, help="tasks, of the 576 that there are (256)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    options = parser.parse_args()
    if not 1 <= options.count <= 576:
        parser.error(f"--count is from 1 to 576, not {options.count}")
    tasks: dict[Task, None] = {}
    seed = options.seed
    while len(tasks) < options.count:
        tasks[Task.from_seed(seed)] = None
        seed += 1
    for task in tasks:
        print(json.dumps({"observations": task.observations}))


if __name__ == "__main__":
    main()
