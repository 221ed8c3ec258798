"""`python -m bench.rewards_sandbox --tasks FILE` says which right code loses its point."""

import gzip
import json

import pytest

from bench.rewards_sandbox import main

pytestmark = pytest.mark.process
LINES = [
    {"task_id": "HumanEval/0", "prompt": "def f(x):\n", "canonical_solution": "    return x\n", "entry_point": "f", "test": "def check(g):\n    assert g(1) == 1"},
    {"task_id": 2, "code": "def f(x): return {x}", "test_list": ["assert f(1) == {1}"], "test_setup_code": "", "challenge_test_list": []},
    {"id": "own", "use": "pytest", "code": "def f(x): return x", "tests": "from solution import f\ndef test_f(): assert f(1) == 1"},
    {"id": "functions", "code": "def f(g): return g(1)", "tests": ["assert f(lambda x: x) == 1"]},
    {"id": "wrong", "code": "def f(): return 1", "tests": ["assert f() == 2"]},
]  # fmt: skip


def test_the_share_of_right_code_that_passes(tmp_path, monkeypatch, capsys) -> None:
    """Of files in all three shapes; what fails in plain Python does not count, and what loses its point is named."""
    whole, packed = tmp_path / "tasks.jsonl", tmp_path / "more.jsonl.gz"
    whole.write_text("\n".join(map(json.dumps, LINES[2:])) + "\n")
    packed.write_bytes(gzip.compress("\n".join(map(json.dumps, LINES[:2])).encode()))
    monkeypatch.setattr("sys.argv", ["bench", "--tasks", str(whole), str(packed)])
    assert main() == 1
    figures = json.loads(capsys.readouterr().out)
    assert (figures["tasks"], figures["right_tasks"], figures["right_code_share"]) == (5, 4, 0.75)
    assert list(figures["lost"]) == ["functions"]
    assert "cannot be handed to code" in figures["lost"]["functions"]
