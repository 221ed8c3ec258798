"""docs/cluster.md says of each topic of the catalogue what is lost with it, and of each target what it is."""

import re

from claw_r1.claw.home import PROJECT
from claw_r1.schemas.topics import TOPICS
from tests.infra.dockerfile import TARGETS, stages

PAGE = (PROJECT / "docs" / "cluster.md").read_text()


def test_each_topic_has_its_row() -> None:
    """A topic that is made of facts is brought back by a rebuild, and no other is said to be."""
    rows = re.findall(
        r"^\| ((?:`[a-z.-]+` ?)+)\| [^|]+ \| ([^|]+) \|$", PAGE.partition("## What to keep a copy of")[2], re.MULTILINE
    )
    said = {name: back for names, back in rows for name in re.findall(r"`([^`]+)`", names)}
    assert said.keys() == {topic.name for topic in TOPICS}
    assert {name for name, back in said.items() if "claw rebuild" in back} == {
        each.name for each in TOPICS if each.derived
    }


def test_each_target_has_its_row() -> None:
    """With the command and the ports of its image."""
    rows = re.findall(r"^\| ((?:`[a-z-]+`,? ?)+)\| `([a-z ]+)` \| ([\d, ]*)\|", PAGE, re.MULTILINE)
    said = {name: (command, ports) for names, command, ports in rows for name in re.findall(r"`([^`]+)`", names)}
    assert said.keys() == TARGETS
    for target, (command, ports) in said.items():
        stage = stages()[target]
        assert command.split() == stage.entrypoint
        assert {int(port) for port in re.findall(r"\d+", ports)} == stage.ports
