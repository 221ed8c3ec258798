"""The lines of each room beside its ceiling: `python -m tests.architecture.ceilings` prints them.

Counted is what people write: Python, JavaScript and CSS, without tests, what a generator wrote and what others did. A consumer is
a room. `ceilings.toml` holds the ceilings; a change that passes one raises it in its own commit, which says why.
"""

import subprocess
import tomllib
from collections import Counter
from pathlib import Path, PurePosixPath

from tests.architecture.tree import GENERATED, ROOT, function_lines, written

CEILINGS = Path(__file__).with_name("ceilings.toml")
SUFFIXES = {".py", ".js", ".css"}
UNCOUNTED = ("tests/", "docs/", "consumers/web/static/vendor/")
BLANK = {"", ")", "]", "}", "):", "})", "])"}
"""Lines that only close: a house with many of them is not the narrower for it."""


def ceilings() -> dict[str, int]:
    """Room -> the most lines that it may have."""
    lines: dict[str, int] = tomllib.loads(CEILINGS.read_text())["lines"]
    return lines


def shape_ceilings() -> dict[str, float]:
    """Figure -> the most that it may be, over the whole house."""
    shape: dict[str, float] = tomllib.loads(CEILINGS.read_text())["shape"]
    return shape


def room_of(path: str) -> str:
    """The room of a file, by its path below the root."""
    parts = PurePosixPath(path).parts
    return "/".join(parts[:2]) if parts[0] == "consumers" and len(parts) > 2 else parts[0]


def lines() -> Counter[str]:
    """Room -> the lines that it has."""
    counted: Counter[str] = Counter()
    for path in _paths():
        if "/" in path:
            counted[room_of(path)] += len((ROOT / path).read_text().splitlines())
    return counted


def shape() -> dict[str, float]:
    """Mean characters of a line of Python that says something, and mean lines of a function."""
    widths = [
        len(line.strip())
        for path in written()
        for line in (ROOT / path).read_text().splitlines()
        if line.strip() not in BLANK
    ]
    lengths = [number for _, number in function_lines()]
    return {"characters_per_line": sum(widths) / len(widths), "lines_per_function": sum(lengths) / len(lengths)}


def tracked() -> list[str]:
    """The files that git holds, by their paths below the root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.split("\0") if (ROOT / path).is_file()]


def _paths() -> list[str]:
    return [
        path
        for path in tracked()
        if PurePosixPath(path).suffix in SUFFIXES and path not in GENERATED and not path.startswith(UNCOUNTED)
    ]


def main() -> None:
    """Print a line per room, the largest first, and the shape of the house."""
    most = ceilings()
    counted = lines()
    print("  lines ceiling  room (Python, JavaScript and CSS that people wrote; tests apart)")
    for room, number in counted.most_common():
        print(f"{number:>7} {most.get(room, 0):>7}  {room}")
    print(f"{counted.total():>7} {sum(most.values()):>7}  all")
    for name, value in shape().items():
        print(f"{value:>7.2f} {shape_ceilings()[name]:>7.2f}  {name}")


if __name__ == "__main__":
    main()
