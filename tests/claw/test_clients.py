"""`claw client`: what it prints is what the client's own file format reads, whatever the values hold."""

import json
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from claw_r1.claw import broker_log
from claw_r1.claw.cli import app
from claw_r1.claw.clients import RECIPES
from claw_r1.claw.keys import records
from claw_r1.schemas.events import KeyRecorded
from tests.architecture.tree import ROOT

NASTY = "k\"\\$(touch x)'é\n: {x}"
RUNNER = CliRunner()
READERS: dict[str, Callable[[str], object]] = {".json": json.loads, ".toml": tomllib.loads, ".yml": yaml.safe_load}


def printed(*arguments: str) -> str:
    result = RUNNER.invoke(app, ["client", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def values(parsed: object) -> set[str]:
    """Every text in a parsed file, names included."""
    if isinstance(parsed, dict):
        return {text for pair in parsed.items() for each in pair for text in values(each)}
    if isinstance(parsed, list):
        return {text for each in parsed for text in values(each)}
    return {parsed} if isinstance(parsed, str) else set()


@pytest.mark.parametrize("name", RECIPES)
def test_the_values_reach_the_client_as_they_are(name: str) -> None:
    """Files are read by their own formats, variables by a shell; each names the gateway, the key and the model."""
    answer = json.loads(
        printed(name, "--url", "http://h:1/", "--key", NASTY, "--model", NASTY + "m", "--scope", "s", "--json")
    )
    texts = {text for file in answer["files"] for text in values(READERS[Path(file["path"]).suffix](file["text"]))}
    texts |= set(answer["environment"].values())
    assert texts & {"http://h:1/s", "http://h:1/s/v1"}
    assert NASTY in texts
    assert any(text.endswith(NASTY + "m") for text in texts)
    assert (ROOT / answer["page"]).is_file()


@pytest.mark.parametrize("name", RECIPES)
def test_the_lines_for_the_shell_are_the_variables(name: str) -> None:
    """Copied into a shell, nothing of a value is run."""
    arguments = (name, "--url", "http://h:1", "--key", NASTY, "--model", "m")
    exports = printed(*arguments).split("# a first try")[0].split("# the environment\n")[-1]
    environment = json.loads(printed(*arguments, "--json"))["environment"]
    if not environment:
        return
    script = f'{exports}\nfor name in {shlex.join(environment)}; do printenv -0 "$name"; done'
    shell = subprocess.run(["sh", "-c", script], capture_output=True, check=True, text=True)
    assert shell.stdout.split("\0")[:-1] == list(environment.values())


def test_without_a_key_it_says_how_to_make_one() -> None:
    """With the options that this client wants; a client of no recipe is refused by name."""
    result = RUNNER.invoke(app, ["client", "aider", "--url", "http://127.0.0.1:1", "--model", "m"])
    assert "claw keys create NAME --scope NAME --sampling temperature=1" in result.stderr
    assert "no recipe for cursor" in str(RUNNER.invoke(app, ["client", "cursor"]).exception)


def test_a_new_key_is_made_as_the_client_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claude Code's own names of models lead to ours; without a model nothing is made. The calls of an SDK, which names no
    session, are joined within the key's scope, unless the path names one."""
    keys: list[KeyRecorded] = []

    def create(_: object, key: KeyRecorded) -> tuple[str, KeyRecorded]:
        keys.append(key)
        return "secret", key

    monkeypatch.setattr(records, "create", create)
    monkeypatch.setattr(broker_log, "log_for_reading", lambda prefix: nullcontext())
    url = ("--url", "http://127.0.0.1:1", "--json", "--new-key", "mine")
    environment = json.loads(printed("claude-code", *url, "--model", "m"))["environment"]
    assert environment["ANTHROPIC_AUTH_TOKEN"] == "secret"
    assert [(key.name, key.role, key.aliases) for key in keys] == [("mine", "agent", {"claude-*": "m"})]
    assert "--new-key needs --model" in str(RUNNER.invoke(app, ["client", "claude-code", *url]).exception)
    assert len(keys) == 1
    printed("openai", *url, "--model", "m")
    printed("openai", *url, "--model", "m", "--scope", "s")
    assert [(key.scope, key.strip_strict) for key in keys[1:]] == [("mine", True), (None, True)]
