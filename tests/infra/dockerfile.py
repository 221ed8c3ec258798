"""The Dockerfile of infra/images, read: its stages, and what a target is in the end."""

import json
import re
import shlex
from dataclasses import dataclass, field

from claw_r1.claw.home import PROJECT

IMAGES = PROJECT / "infra" / "images"
HOST = re.compile(r"^(?:[\w-]+\.)+\w+(?::\d+)?/|^localhost[:/]|^[\w.-]+:\d+/")
"""What an image's name begins with that says which registry it comes from."""


@dataclass
class Stage:
    """One stage: the instructions after its FROM, those of the stages that it stands on first."""

    name: str
    below: str
    lines: list[tuple[str, str]] = field(default_factory=list)

    def last(self, instruction: str) -> str:
        """The text of the last such instruction; "" where there is none."""
        return next((text for name, text in reversed(self.lines) if name == instruction), "")

    @property
    def env(self) -> dict[str, str]:
        pairs = [word.partition("=") for name, text in self.lines if name == "ENV" for word in shlex.split(text)]
        return {name: value for name, _, value in pairs}

    @property
    def entrypoint(self) -> list[str]:
        words: list[str] = json.loads(self.last("ENTRYPOINT"))
        return words

    @property
    def ports(self) -> set[int]:
        return {int(port) for name, text in self.lines if name == "EXPOSE" for port in text.split()}


def stages(lock: str = "cpu") -> dict[str, Stage]:
    """Name -> stage, in the file's order, as the argument LOCK has it."""
    text = re.sub(r"\\\n\s*", " ", (IMAGES / "Dockerfile").read_text())
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    read: dict[str, Stage] = {}
    stage = Stage("", "")
    for instruction, rest in lines:
        if instruction == "FROM":
            below, _, name = rest.replace("${LOCK}", lock).split()
            stage = read[name] = Stage(name, below, [*read[below].lines] if below in read else [])
        elif read:
            stage.lines.append((instruction, rest))
    return read


def arguments() -> dict[str, str]:
    """The ARGs before the first FROM, with their defaults."""
    head = (IMAGES / "Dockerfile").read_text().partition("\nFROM ")[0]
    return dict(re.findall(r"^ARG (\w+)=(\S+)$", head, re.MULTILINE))


TARGETS = {"gateway", "streams", "rewards", "dashboard", "tools", "trainer", "rollout"}
"""Those of rooms, by whose names they go."""
COMPILING = {"trainer", "rollout"}
"""Those whose images have a compiler where LOCK is gpu."""
