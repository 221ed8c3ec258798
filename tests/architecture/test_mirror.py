"""The tests of a module stand at its path below `tests/`; what stands elsewhere is in `mirror.toml`, with its reason."""

import tomllib
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from tests.architecture.ceilings import tracked
from tests.architecture.tree import ROOMS

TABLE = Path(__file__).with_name("mirror.toml")
INTEGRATION = "integration"
"""The folder of scenarios: of a whole process, or of several modules together."""


def exceptions(kind: str) -> dict[str, str]:
    """Path -> why it has no mirror image."""
    reasons: dict[str, str] = tomllib.loads(TABLE.read_text())[kind]
    assert all(reasons.values())
    return reasons


@cache
def modules() -> dict[PurePosixPath, frozenset[str]]:
    """Folder of a room -> the names of its modules and packages, and its own."""
    names: dict[PurePosixPath, set[str]] = {}
    for path in map(PurePosixPath, tracked()):
        if path.parts[0] in ROOMS and path.suffix in {".py", ".js"}:
            for inner, folder in zip([path, *path.parents], path.parents, strict=False):
                names.setdefault(folder, {folder.name}).add(inner.stem.strip("_"))
    return {folder: frozenset(inside) for folder, inside in names.items()}


def files_of_tests() -> list[PurePosixPath]:
    """The files of tests of the rooms, by their paths below `tests/`."""
    paths = [PurePosixPath(path).relative_to("tests") for path in tracked() if path.startswith("tests/")]
    return [path for path in paths if path.parts[0] in ROOMS and path.match("test_*.py")]


def is_mirror(path: PurePosixPath) -> bool:
    """Returns whether a file is named after a module or a package of its folder, with or without more words, or is a scenario."""
    name = path.stem.removeprefix("test_")
    known = modules().get(path.parent, frozenset())
    return INTEGRATION in path.parent.parts or any(name == each or name.startswith(f"{each}_") for each in known)


def test_tests_stand_where_their_module_is() -> None:
    """A line of the table that is no longer needed is no exception any more, and goes."""
    assert {f"tests/{path}" for path in files_of_tests() if not is_mirror(path)} == set(exceptions("tests"))


def test_each_folder_of_modules_has_a_folder_of_tests() -> None:
    """A folder whose modules are tried elsewhere alone says where."""
    tried = {path.parent for path in files_of_tests()}
    written = {PurePosixPath(path).parent for path in tracked() if path.endswith(".py") and "/__" not in path}
    untried = {folder for folder in written - tried if folder.parts and folder.parts[0] in ROOMS}
    assert {str(folder) for folder in untried} == set(exceptions("folders"))


@pytest.mark.parametrize(
    ("path", "mirrors"),
    [
        ("gateway/http/test_connection.py", True),
        ("gateway/http/test_connection_of_a_client.py", True),
        ("gateway/test_http.py", True),
        ("gateway/integration/test_anything.py", True),
        ("gateway/test_connection.py", False),
        ("gateway/http/test_connections.py", False),
        ("gateway/nowhere/test_connection.py", False),
        ("gateway/test_integration.py", False),
    ],
)
def test_a_name_in_another_folder_is_no_mirror(path: str, mirrors: bool) -> None:
    """Neither are a folder that the room has not, and a word that only begins like a module."""
    assert is_mirror(PurePosixPath(path)) is mirrors
