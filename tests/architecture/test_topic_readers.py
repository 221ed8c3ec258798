"""The readers of a topic: the catalogue against the imports of the code."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from claw_r1.schemas import topics
from claw_r1.schemas.topics import TOPICS, Topic

ROOT = Path(__file__).parents[2]
ROOMS = ("gateway", "streams", "weights", "trainer", "rollout", "agentflow", "consumers", "claw")
CONSTANTS = {topic.name: name for name, topic in vars(topics).items() if isinstance(topic, Topic)}
ALL_TOPICS = "TOPICS"
"""Imported, it is every topic."""
FACTS = {"FACTS": {"CALLS", "REWARDS"}}
"""Imported, it is both."""
BY_POSITION = {"FactLookup": "CALLS"}
"""A topic that others name is read by these: plans and pool records say where their facts lie."""
READING = frozenset({"reader", "read_topics", "LogReader"})
"""Calls that fetch the records of the topics among their arguments: who makes one reads them, though it writes them, too."""
WRITERS = {
    "reactors": "streams",
    "operator": "claw",
    "the run's trainer": "trainer",
    "rollout supervisors": "rollout",
    "any reader": "streams",
}
"""The room behind a writer that is no room."""


@cache
def imports(path: Path) -> frozenset[tuple[str, str]]:
    """(module, name) of everything that a file imports from somewhere."""
    nodes = ast.walk(ast.parse(path.read_text()))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return frozenset((str(node.module), alias.name) for node in froms for alias in node.names)


def view_files(module: str, name: str) -> Iterator[Path]:
    """Files of `claw_r1.datapool.view` that an import loads: the view reads the pool's topics for whoever uses it."""
    if module.startswith("claw_r1.datapool.view"):
        place = ROOT / module.removeprefix("claw_r1.").replace(".", "/")
        paths = (place, place / name)
        yield from (path.with_suffix(".py") for path in paths if path.with_suffix(".py").exists())


def loaded(path: Path) -> set[Path]:
    """A file and all files of the view that it needs."""
    files, waiting = {path}, [path]
    while waiting:
        for module, name in imports(waiting.pop()):
            new = [each for each in view_files(module, name) if each not in files]
            files.update(new)
            waiting += new
    return files


def constants(path: Path) -> set[str]:
    """Names of the topics that a file knows."""
    names = {name for each in loaded(path) for module, name in imports(each) if module == "claw_r1.schemas.topics"}
    names |= set().union(*(FACTS.get(name, set()) for name in names))
    names |= {BY_POSITION[name] for _, name in imports(path) if name in BY_POSITION}
    return set(CONSTANTS.values()) if ALL_TOPICS in names else names & set(CONSTANTS.values())


def party(path: Path) -> str:
    """The room of a file; each consumer is one of its own. `consumers/pool` opens nothing: it reads what `claw` hands it."""
    parts = path.relative_to(ROOT).parts
    if parts[:2] == ("consumers", "pool"):
        return "claw"
    return parts[1].removesuffix(".py") if parts[0] == "consumers" else parts[0]


@cache
def users() -> dict[str, set[str]]:
    """Name of a topic -> who imports it."""
    parties: dict[str, set[str]] = {name: set() for name in CONSTANTS.values()}
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for name in constants(path):
            parties[name].add(party(path))
    return {topic: parties[name] for topic, name in CONSTANTS.items()}


def fetches(path: Path) -> set[str]:
    """Names of the topics that a file names in a call that fetches their records."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    calls = [call for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) in READING]
    arguments = [each for call in calls for each in (*call.args, *(word.value for word in call.keywords))]
    names = {node.id for each in arguments for node in ast.walk(each) if isinstance(node, ast.Name)}
    return names.union(*(FACTS.get(name, set()) for name in names)) & set(CONSTANTS.values())


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_the_readers_of_a_topic_are_those_who_import_it(topic: Topic) -> None:
    """Each reader in the catalogue imports the topic, and whoever imports it reads it or is one of its writers."""
    readers = {reader.partition(" ")[0] for reader in topic.readers}
    writers = {WRITERS.get(writer, writer) for writer in topic.writers}
    assert readers <= users()[topic.name]
    assert users()[topic.name] - writers <= readers


@pytest.mark.parametrize("room", ROOMS)
def test_who_fetches_a_topic_is_one_of_its_readers(room: str) -> None:
    """A writer may not read what it writes, by Kafka's access lists, unless the catalogue says that it does."""
    for path in (ROOT / room).rglob("*.py"):
        for name in fetches(path):
            readers = {reader.partition(" ")[0] for reader in vars(topics)[name].readers}
            assert party(path) in readers, (path, name)


def test_a_reader_that_uses_the_view_is_seen() -> None:
    """The trainer names no topic of the pool itself: it reads them through the pool's view, and calls by position."""
    own = set().union(*(imports(path) for path in (ROOT / "trainer").rglob("*.py")))
    assert not {("claw_r1.schemas.topics", name) for name in ("GROUPS", "CALLS")} & own
    assert "trainer" in users()["datapool.groups"] & users()["calls"]
