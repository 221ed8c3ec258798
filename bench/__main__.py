"""The list of what can be measured: `python -m bench`."""

import importlib

from bench.report import Bench

BENCHES = ("gateway", "agents", "deltas", "datapool", "trainer", "environments", "weights", "loop", "rewards", "dashboard", "scale")  # fmt: skip
ALONE = {
    "walk": "The walk of one call, reward, verdict and page update through the house: files and moves, as JSON.",
    "trainer_staleness": "The table of learning under staleness, after what is missing of it; `--known`: as it stands.",
    "gpu_check": "A check of what only a GPU can show, where torch and little else is installed.",
}
"""Programs without the frame."""


def bench(name: str) -> Bench:
    """Returns the room's bench."""
    found: Bench = importlib.import_module(f"bench.{name}.__main__").BENCH
    return found


def listed() -> str:
    """The benches, each with its parts and sizes, and how to ask for one."""
    lines = ["`make bench-NAME`, or `python -m bench.NAME [--only PART]… [--SIZE N]… [--json] [--resume]`:", ""]
    for one in map(bench, BENCHES):
        lines += [f"{one.name:14}{one.about.splitlines()[0]}", f"{'':14}parts: {', '.join(one.parts)}"]
        if one.sizes:
            lines.append(f"{'':14}sizes: {', '.join(f'{name}={size}' for name, size in one.sizes.items())}")
    lines += ["", "`python -m bench.NAME`:", "", *(f"{name:18}{about}" for name, about in ALONE.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    print(listed())
