"""The summary that a demo prints at its end: the table of targets, the place of the plot, two episodes, and commands to
go on with."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from claw_r1.claw.demo.report import DemoTarget, Result
from claw_r1.claw.tls.tls_dir import VARIABLE
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import Catalogue

SOLVED = 0.999
DEFAULT_PREFIX = Catalogue().prefix


def print_summary(
    result: Result, targets: list[DemoTarget], files: tuple[Path, Path], run_dir: Path, *, prefix: str, to_stderr: bool
) -> None:
    """Prints it on stdout, or on stderr where stdout is for JSON."""
    console = Console(stderr=to_stderr, highlight=False)
    console.print(_table(result, targets))
    console.print(f"plot: {result.plot}\nlogs, metrics, checkpoints: {run_dir}", soft_wrap=True)
    before, after = (_episodes(file) for file in files)
    failing = next((episode for episode in before if episode["reward"] < SOLVED), None)
    solved = next((episode for episode in after if episode["reward"] >= SOLVED), None)
    for title, episode in (
        ("before training, a failing episode", failing),
        ("after training, a solved episode", solved),
    ):
        if episode:
            console.print(f"\n[bold]{title}[/bold] (reward {episode['reward']:.2f})\n{_conversation(episode)}")
    episode_shown = solved or failing
    trajectory_id = episode_shown["trajectory"]["trajectory_id"] if episode_shown else "<trajectory>"
    console.print("\nlook further:", *further(trajectory_id, prefix), sep="\n", soft_wrap=True)


def further(trajectory_id: str, prefix: str) -> list[str]:
    """Commands that can be typed as they stand; the last shows all of it on a page."""
    option = "" if prefix == DEFAULT_PREFIX else f" --prefix {prefix}"
    typed = ("topics describe", "replay --topic calls --limit 3", f"inspect {trajectory_id}", "dashboard")
    secured = f"{VARIABLE}={os.environ[VARIABLE]} " if os.environ.get(VARIABLE) else ""
    return [f"  {secured}{command()} {arguments}{option}" for arguments in typed]


def command() -> str:
    """Returns how this installation's `claw` is typed from the working directory."""
    installed = Path(sys.executable).with_name("claw")
    if shutil.which("claw") == str(installed):
        return "claw"
    return str(installed.relative_to(Path.cwd())) if installed.is_relative_to(Path.cwd()) else str(installed)


def _table(result: Result, targets: list[DemoTarget]) -> Table:
    title = f"{result.batches} batches, {result.versions} versions, {result.groups_trained} groups trained in {result.seconds:.0f} s"
    table = Table("", "measured", "target", "", title=title, title_justify="left")
    for target in targets:
        table.add_row(
            target.name, target.figure, target.limit, "[green]met[/green]" if target.met else "[red]missed[/red]"
        )
    return table


def _episodes(file: Path) -> list[JsonDict]:
    episodes: list[JsonDict] = orjson.loads(file.read_bytes())["episodes"]
    return episodes


def _conversation(episode: JsonDict) -> str:
    return "\n".join(f"  {role:>9}  {escape(text)}" for role, text in map(_role_and_text, episode["transcript"]))


def _role_and_text(message: dict[str, Any]) -> tuple[str, str]:
    """Returns the role and the text of a message in any protocol: a text, blocks with texts or results, an item with an
    output."""
    role, content = message.get("role", "tool"), message.get("content", message.get("output"))
    if isinstance(content, list):
        blocks = [block.get("text", block.get("content", "")) for block in content]
        role = "tool" if any(block["type"] == "tool_result" for block in content) else role
        content = "".join(map(str, blocks))
    return role, str(content)
