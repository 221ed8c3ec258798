"""Commands of a page as a script, to be followed literally."""

import os
import re
import subprocess
from pathlib import Path

from tests.caches import share_caches

ROOT = Path(__file__).resolve().parents[2]
SAVED = re.compile(r"Save this as `([\w.]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(page: str, name: str) -> str:
    """The shell commands between `<!-- name -->` and `<!-- /name -->` of a page, in order."""
    return "".join(FENCE.findall(_part(page, name)))


def files(page: str, name: str, folder: Path) -> list[str]:
    """Saves into the folder each file that the part of the page tells its reader to save, and returns their names."""
    saved = SAVED.findall(_part(page, name))
    for file, text in saved:
        (folder / file).write_text(text)
    return [file for file, _ in saved]


def _part(page: str, name: str) -> str:
    return (ROOT / page).read_text().split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]


def unknown_flags(script: str) -> list[str]:
    """Each `--flag` of a `claw` command in the script that this command's help does not name."""
    claw = ROOT / ".venv" / "bin" / "claw"
    unknown = []
    for line in re.findall(r"^(?:\w+=\S+ )?claw ([a-z][^|&;)\n#]*)", script, re.MULTILINE):
        words = line.split()
        command = words[: 1 if len(words) == 1 or words[1].startswith("-") or words[0] in ("up", "inspect") else 2]
        flags = [word for word in words if word.startswith("--")]
        helped = subprocess.run([claw, *command, "--help"], capture_output=True, text=True, check=False)
        unknown += [f"claw {' '.join(command)}: {helped.stderr}"] if helped.returncode else []
        unknown += [f"claw {' '.join(command)} {flag}" for flag in flags if flag not in helped.stdout]
    return unknown


def follow(script: str, folder: Path, home: Path, timeout_s: float, **variables: str) -> str:
    """Everything that bash prints when it types the script in this folder, with a home and so a broker of its own.

    Raises AssertionError when a command fails.
    """
    share_caches(home)
    others = {name: value for name, value in os.environ.items() if not name.startswith(("CLAW_", "KAFKA_"))}
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        cwd=folder,
        env={**others, "CLAW_HOME": str(home), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout
