"""What somebody gets who installs the wheel: one import name, and commands that a folder of theirs does not disturb."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from claw_r1.claw.home import PROJECT
from infra.install.environment import LOCKS, UV
from tests.architecture.tree import ROOMS
from tests.claw.foreign import COMMANDS, folder_with_our_names, helps

pytestmark = pytest.mark.process
LINKS = PROJECT / "infra" / "python" / "claw_r1"
IMPORTS = """
import importlib, pkgutil, claw_r1
def missing(name):
    try: importlib.import_module(name)
    except ModuleNotFoundError as error: return error.name.partition(".")[0]
names = [each.name for each in pkgutil.walk_packages(claw_r1.__path__, "claw_r1.", onerror=lambda name: None)]
print(claw_r1.__file__, len(names), *sorted({missing(name) for name in names if not name.endswith("__main__")} - {None}))
"""
NOT_ASKED_FOR = {
    "aiohttp", "cryptography", "deepspeed", "krippendorff", "jgo", "matplotlib", "numpy", "pyarrow", "safetensors", "scipy", "tensorboard",
    "tokenizers", "torch", "transformers", "vllm",
}  # fmt: skip
"""Libraries of the extras that this installation leaves out."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `hatchling build` makes it here."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


def test_its_top_level_is_one_name(wheel: Path) -> None:
    """`claw_r1` and the metadata: nothing generic lands in anybody's site-packages."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {re.sub(r"-.*\.dist-info$", ".dist-info", name.split("/")[0]) for name in names} == {
        "claw_r1",
        "claw_r1.dist-info",
    }
    assert {name.split("/")[1] for name in names if name.startswith("claw_r1/")} == {"__init__.py", *ROOMS}
    assert {"claw_r1/claw/local/jars.lock", "claw_r1/schemas/avro/ids.json", "claw_r1/claw/demo/verbs/judge.md"} <= {
        *names
    }


def test_links_and_wheel_name_the_same_rooms() -> None:
    """A room has a link for checkouts, a line of `sources` and one of `only-include` for wheels; each link leads to its folder."""
    build = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    links = {path.name: path.resolve() for path in LINKS.iterdir() if path.is_symlink()}
    assert links == {room: PROJECT / room for room in ROOMS}
    assert build["targets"]["wheel"]["sources"] == {
        **{room: f"claw_r1/{room}" for room in ROOMS},
        "infra/python/claw_r1": "claw_r1",
    }
    assert {*build["targets"]["wheel"]["only-include"]} == {"infra/python/claw_r1/__init__.py", *ROOMS}
    assert build["targets"]["sdist"]["only-include"] == build["targets"]["wheel"]["only-include"]


def test_an_editable_install_shows_that_name_alone(tmp_path: Path) -> None:
    """In another folder `claw_r1` is the checkout's, and no room is a module of its own."""
    code = (
        "import importlib.util as u, sys, claw_r1; print(claw_r1.__file__, [n for n in sys.argv[1:] if u.find_spec(n)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *ROOMS, "examples"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(LINKS / "__init__.py"), "[]"]


@pytest.mark.skipif("CLAW_WHEEL" not in os.environ, reason="`make wheel-test` asks for it: it installs packages")
def test_it_works_outside_a_clone(wheel: Path, tmp_path: Path) -> None:
    """With the extras gateway and streams: every module loads but for libraries of other extras, nine commands say their help."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    python = tmp_path / "venv" / "bin" / "python"
    _run(environment, tmp_path, UV, "venv", "-q", "-p", sys.executable, tmp_path / "venv")
    versions = tmp_path / "versions.txt"
    locked = re.findall(r"^[\w.-]+==[\w.+-]+", (LOCKS / "cpu.txt").read_text(), re.MULTILINE)
    # Faust asks for an older click than the lock has by its override (CONTRIBUTING.md, "The lock").
    versions.write_text("\n".join(line for line in locked if not line.startswith("click==")))
    _run(environment, tmp_path, UV, "pip", "install", "-q", "-p", python, "-c", versions, f"{wheel}[gateway,streams]")
    file, number, *absent = _run(environment, tmp_path, python, "-P", "-c", IMPORTS).split()
    assert Path(file) == next((tmp_path / "venv").glob("lib/python3.*/site-packages/claw_r1/__init__.py"))
    assert int(number) > 500
    assert {*absent} <= NOT_ASKED_FOR
    foreign = folder_with_our_names(tmp_path / "foreign")
    claw = python.with_name("claw")
    assert helps([str(claw)], foreign, environment) == dict.fromkeys(COMMANDS, "")


def _run(environment: Mapping[str, str], folder: Path, *command: str | Path) -> str:
    """What a command prints."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
