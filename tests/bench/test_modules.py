"""A bench is run rarely, and what it measures is renamed often."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bench
from bench.__main__ import ALONE, BENCHES, listed
from bench.__main__ import bench as bench_of

ROOT = Path(*bench.__path__).parent
PATHS = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "bench").rglob("*.py")]
MODULES = sorted(".".join(path.parts[1:]) for path in PATHS if path.stem != "__init__")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
HEAVY = {"torch", "transformers", "confluent_kafka", "claw_r1.gateway", "playwright"}


@pytest.mark.parametrize("name", MODULES)
def test_every_bench_is_importable(name: str) -> None:
    """`bench.deltas` imported a name that was gone, which its bench alone would have told."""
    importlib.import_module(f"bench.{name}")


@pytest.mark.parametrize("name", BENCHES)
def test_every_part_is_a_function_of_the_sizes(name: str) -> None:
    """Each part is there and takes sizes of the bench alone; each size is taken by a part, so that no flag does nothing."""
    one, taken = bench_of(name), set[str]()
    for function in one.parts.values():
        module, _, attribute = function.partition(":")
        taken |= set(inspect.signature(getattr(importlib.import_module(module), attribute)).parameters)
    assert taken == set(one.sizes)
    assert (one.name, set(one.learning) - set(one.parts)) == (name, set())


def test_the_list_names_every_bench_at_once() -> None:
    """`python -m bench` has all that have a `BENCH`, and imports none of what they measure."""
    own = {path.parent.name for path in (ROOT / "bench").glob("*/*.py") if "BENCH.main()" in path.read_text()}
    assert own == set(BENCHES)
    assert all(f"\n{name} " in listed() for name in (*BENCHES, *ALONE))
    code = f"import sys, bench.__main__ as m; m.listed(); print({HEAVY} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_size_or_part_that_is_not_there_is_refused() -> None:
    """With exit status 2, before anything is measured."""
    for words in (["--only", "nonsense"], ["--turns", "1"], ["--repeats", "many"]):
        with pytest.raises(SystemExit, match="2"):
            bench_of("weights").parser().parse_args(words)


def test_what_the_pages_ask_for_is_there() -> None:
    """Each bench that a page names can be run, and has the parts and sizes that it names."""
    for path in PAGES:
        text = path.read_text()
        for name, words in re.findall(r"(?:make bench-|-m bench\.)([a-z]\w*)((?:[ \w\"=\[\]]|--?\w)*)", text):
            assert name in (*BENCHES, *ALONE), (path.name, name)
            if name in BENCHES:
                flags = bench_of(name).parser().format_help()
                assert [flag for flag in re.findall(r"--[a-z-]+", words) if flag not in flags] == [], (path.name, words)
                assert set(re.findall(r"--(?:only|part) ([a-z_]+)", words)) <= set(bench_of(name).parts), (
                    path.name,
                    words,
                )
        modules = set(re.findall(r"(?<!tests/)\bbench[./](\w+)(?:[./]([a-z]\w*))?", text))
        there = {(*path.with_suffix("").parts[1:], "")[:2] for path in PATHS}
        there |= {(name, "") for name, _ in there} | {(name, "py") for name, _ in there}
        assert {each for each in modules if each[0] != "out"} <= there, path.name
