"""What somebody gets who installs the wheel: one import name, and commands that a folder of theirs does not disturb."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from claw_r1.claw.home import PROJECT
from claw_r1.claw.install.environment import LOCKS, UV
from claw_r1.claw.local.jars import read_lock
from tests.architecture.tree import ROOMS
from tests.claw.foreign import COMMANDS, folder_with_our_names, helps

pytestmark = pytest.mark.process
LINKS = PROJECT / "infra" / "python" / "claw_r1"
ALONE = {
    "gateway": ("gateway",), "streams": ("streams",), "trainer": ("trainer",), "agentflow": ("agentflow",),
    "consumers": ("consumers",), "stack": (),
}  # fmt: skip
"""Extra -> the rooms of which every module loads where it alone is installed, beside the rooms that need none."""
ROOMS_WITHOUT_EXTRA = ("schemas", "runtime", "eventlog", "datapool")
FOREIGN = {
    "gateway": {"torch", "vllm", "faust", "deepspeed"}, "streams": {"torch", "vllm", "fastapi"}, "trainer": {"vllm", "faust", "fastapi"},
    "agentflow": {"torch", "vllm", "faust", "fastapi"}, "consumers": {"torch", "vllm", "faust"}, "stack": {"torch", "vllm", "fastapi"},
}  # fmt: skip
"""Extra -> libraries that it must not bring."""
LISTS_THE_POOL = ("trainer", "consumers", "stack")
"""Extras with numpy, which `datapool/view/listing` needs and rooms that read no lists do not."""
GATEWAY_MB = 90
IMPORTS = """
import importlib, importlib.util, json, pkgutil, sys, claw_r1
def missing(name):
    try: importlib.import_module(name)
    except ModuleNotFoundError as error: return error.name
names = [each.name for room in sys.argv[1].split(",")
         for each in pkgutil.walk_packages([f"{claw_r1.__path__[0]}/{room}"], f"claw_r1.{room}.", onerror=lambda name: None)]
print(json.dumps({
    "file": claw_r1.__file__, "modules": len(names),
    "missing": sorted({missing(name) for name in names if not name.endswith("__main__")} - {None}),
    "foreign": [name for name in sys.argv[2].split(",") if importlib.util.find_spec(name)],
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `hatchling build` makes it here."""
    return _hatchling(PROJECT, "wheel", tmp_path_factory.mktemp("wheel"))


def test_its_top_level_is_one_name(wheel: Path) -> None:
    """`claw_r1` and the metadata: nothing generic lands in anybody's site-packages."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {re.sub(r"-.*\.dist-info$", ".dist-info", name.split("/")[0]) for name in names} == {
        "claw_r1",
        "claw_r1.dist-info",
    }
    assert {name.split("/")[1] for name in names if name.startswith("claw_r1/")} == {"__init__.py", *ROOMS}
    assert {
        "claw_r1/claw/local/jars.lock",
        "claw_r1/claw/install/locks/demo.txt",
        "claw_r1/schemas/avro/ids.json",
        "claw_r1/claw/demo/verbs/judge.md",
    } <= {*names}


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
    assert {*build["targets"]["sdist"]["only-include"]} >= {*build["targets"]["wheel"]["only-include"]}


def test_an_editable_install_shows_that_name_alone(tmp_path: Path) -> None:
    """In another folder `claw_r1` is the checkout's, and no room is a module of its own."""
    code = (
        "import importlib.util as u, sys, claw_r1; print(claw_r1.__file__, [n for n in sys.argv[1:] if u.find_spec(n)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *ROOMS, "examples"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(LINKS / "__init__.py"), "[]"]


def test_the_same_sources_are_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """A wheel made of the source distribution, in another folder and with other times of files, is that of the checkout."""
    _hatchling(PROJECT, "sdist", tmp_path)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as sources:
        sources.extractall(tmp_path / "sources", filter="data")
    folder = next((tmp_path / "sources").iterdir())
    for path in folder.rglob("*.py"):
        os.utime(path, (1, 1))
    again = _hatchling(folder, "wheel", tmp_path / "again")
    assert again.read_bytes() == wheel.read_bytes()


def test_it_carries_its_licences_and_says_what_it_holds_of_others(wheel: Path) -> None:
    """The licence of each vendored library is there; the bill of materials names each of them, each jar and each locked package."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name.partition(".dist-info/")[2] for name in archive.namelist() if ".dist-info/" in name]
        bill = json.loads(archive.read(next(name for name in archive.namelist() if name.endswith(".cdx.json"))))
    licences = [path.name for path in (PROJECT / "consumers/web/static/vendor").glob("LICENSE.*")]
    assert licences
    assert {"licenses/LICENSE", *(f"licenses/consumers/web/static/vendor/{name}" for name in licences)} <= {*names}
    parts = {part["purl"] for part in bill["components"]}
    assert len(parts) == len(bill["components"])
    lock = json.loads((PROJECT / "consumers/web/static/vendor/lock.json").read_text())
    assert parts >= {f"pkg:npm/{name.replace('@', '%40')}@{entry['version']}" for name, entry in lock.items()}
    assert parts >= {f"pkg:maven/{jar.group}/{jar.artifact}@{jar.version}" for jar in read_lock()}
    locked = re.findall(r"^([\w.-]+)==([\w.+-]+)", (LOCKS / "demo.txt").read_text(), re.MULTILINE)
    assert parts >= {f"pkg:pypi/{name}@{version}" for name, version in locked}


DOWNLOADS = pytest.mark.skipif(
    "CLAW_WHEEL" not in os.environ, reason="`make wheel-test` asks for it: it installs packages"
)


@DOWNLOADS
@pytest.mark.parametrize("extra", ALONE)
def test_each_room_works_alone_outside_a_clone(extra: str, wheel: Path, tmp_path: Path) -> None:
    """Plain resolution, as pip does it, in an empty environment: the room's modules load, and no other room's libraries come along."""
    environment, python = _environment(tmp_path)
    locked = re.findall(r"^(\S+==.+?) \\$", (LOCKS / "cpu.txt").read_text(), re.MULTILINE)
    versions = tmp_path / "versions.txt"
    # Faust asks for an older click than the lock has by its override (CONTRIBUTING.md, "The lock").
    versions.write_text("\n".join(line for line in locked if not line.startswith("click==")))
    _run(environment, tmp_path, UV, "pip", "install", "-q", "-p", python, "-c", versions, f"{wheel}[{extra}]")
    rooms, foreign = ",".join((*ROOMS_WITHOUT_EXTRA, *ALONE[extra])), ",".join(FOREIGN[extra])
    found = json.loads(_run(environment, tmp_path, python, "-P", "-c", IMPORTS, rooms, foreign))
    packages = next((tmp_path / "venv").glob("lib/python3.*/site-packages"))
    assert Path(found.pop("file")) == packages / "claw_r1" / "__init__.py"
    assert found.pop("modules") > 100
    lists = [] if extra in LISTS_THE_POOL else ["numpy"]
    assert found == {"missing": [*lists, "opentelemetry"], "foreign": []}  # spans have an extra of their own
    ours = folder_with_our_names(tmp_path / "foreign")
    assert helps([str(python.with_name("claw"))], ours, environment) == dict.fromkeys(COMMANDS, "")
    bytes_ = sum(path.lstat().st_size for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc")
    print(f"[{extra}] {bytes_ / 1e6:.0f} MB")
    if extra == "gateway":
        assert bytes_ / 1e6 <= GATEWAY_MB


VALIDATE = """
import sys; from cyclonedx.schema import SchemaVersion; from cyclonedx.validation.json import JsonStrictValidator
print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()))
"""


@DOWNLOADS
def test_the_bill_of_materials_is_cyclonedx(wheel: Path, tmp_path: Path) -> None:
    """The library of those who made the format finds nothing wrong with it."""
    environment, python = _environment(tmp_path)
    _run(environment, tmp_path, UV, "pip", "install", "-q", "-p", python, "cyclonedx-python-lib[json-validation]")
    with zipfile.ZipFile(wheel) as archive:
        bill = archive.read(next(name for name in archive.namelist() if name.endswith(".cdx.json")))
    said = subprocess.run([python, "-c", VALIDATE], input=bill, env=environment, capture_output=True, check=True)
    assert said.stdout.split() == [b"None"]


@DOWNLOADS
@pytest.mark.timeout(2400)
def test_a_stack_learns_outside_a_clone(wheel: Path, tmp_path: Path) -> None:
    """`claw setup demo` beside the bare wheel; then a stack comes up, Kafka's tools work on it, and agents learn."""
    environment, python = _environment(tmp_path)
    _run(environment, tmp_path, UV, "pip", "install", "-q", "-p", python, wheel)
    claw = python.with_name("claw")
    _run(environment, tmp_path, claw, "setup", "demo")
    assert list((tmp_path / ".claw" / "cache" / "jars").glob("*/kafka-clients-*.jar")), (
        "in the folder that is worked in"
    )
    _run(environment, tmp_path, claw, "up", "--port", "0")
    try:
        assert "claw.calls" in _run(environment, tmp_path, claw, "broker", "tool", "topics", "--list").split()
    finally:
        _run(environment, tmp_path, claw, "down")
    absent = [line for line in _run(environment, tmp_path, claw, "doctor").splitlines() if "not installed" in line]
    assert absent == []
    learned = json.loads(_run(environment, tmp_path, claw, "demo", "--json"))
    assert learned["reward_last"] > learned["reward_first"]
    print(f"reward {learned['reward_first']:.2f} -> {learned['reward_last']:.2f} in {learned['seconds']:.0f} s")


def _environment(folder: Path) -> tuple[dict[str, str], Path]:
    """The variables of a person who has no checkout, and the Python of an empty environment in `folder`."""
    ours = ("PYTHON", "VIRTUAL_ENV", "CLAW_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    _run(environment, folder, UV, "venv", "-q", "-p", sys.executable, folder / "venv")
    return environment, folder / "venv" / "bin" / "python"


def _hatchling(project: Path, target: str, folder: Path) -> Path:
    """Builds a wheel or a source distribution."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    built = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl" if target == "wheel" else "*.tar.gz"))


def _run(environment: Mapping[str, str], folder: Path, *command: str | Path) -> str:
    """What a command prints."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
