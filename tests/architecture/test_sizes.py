"""Files, functions and folders stay of a size that a person takes in at one look."""

from collections import Counter
from pathlib import PurePath

from tests.architecture.ceilings import tracked
from tests.architecture.tree import GENERATED, ROOT, function_lines, written

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
FOLDER_FILES_MAX = 14
GENERATED_LINES_MAX = 1200
TRACKED_BYTES_MAX = 128 << 10


def test_files_are_short() -> None:
    """A file of ours stays below one limit, what a generator wrote below another."""
    lengths = {path: len((ROOT / path).read_text().splitlines()) for path in [*written(), *GENERATED]}
    limits = {path: GENERATED_LINES_MAX if path in GENERATED else FILE_LINES_MAX for path in lengths}
    assert {path: lines for path, lines in lengths.items() if lines > limits[path]} == {}


def test_nothing_large_is_tracked() -> None:
    """Git keeps a file for ever: a wheel that `git add -A` took is seen here."""
    sizes = {path: (ROOT / path).stat().st_size for path in tracked()}
    assert {path: size for path, size in sizes.items() if size > TRACKED_BYTES_MAX} == {}


def test_functions_are_short() -> None:
    """A function stays below the limit, docstring and all."""
    assert {name: lines for name, lines in function_lines() if lines > FUNCTION_LINES_MAX} == {}


def test_folders_are_seen_at_one_look() -> None:
    """A folder holds no more modules than the limit, `__init__` and `__main__` aside: folder names are the architecture."""
    modules = [PurePath(path) for path in written() if not PurePath(path).name.startswith("__")]
    sizes = Counter(path.parent.as_posix() for path in modules)
    assert {folder: count for folder, count in sizes.items() if count > FOLDER_FILES_MAX} == {}
