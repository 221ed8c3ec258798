"""The words that rooms share over HTTP: written once, and what is formatted comes back."""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.schemas import http
from tests.architecture.tree import ROOMS, ROOT

OWN_WORDS = {
    "schemas/http.py": "the place itself",
    "schemas/events.py": "generated from avro/*.avsc, where the log's default channel is written",
    "claw/rooms.py": "`train` is the name of a command there",
    "datapool/batch/spec.py": "`train` is what becomes of a truncated trajectory there",
    "consumers/verify/oracle/conflicts.py": "judges the fold, so it states the rule of the channels by itself",
}
SHARED = re.compile(rf"[: ]*(x-claw-[a-z-]+|claw\.tokens=)|{http.Channel.TRAIN}|{http.Channel.VALIDATION}")


def shared_words(path: Path) -> list[str]:
    """The literals of a source file that are a shared word and nothing else; prose may name a header."""
    constants = (node.value for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Constant))
    texts = (value.decode("latin-1") if isinstance(value, bytes) else value for value in constants)
    return [text for text in texts if isinstance(text, str) and SHARED.fullmatch(text)]


def test_no_other_file_writes_a_shared_word() -> None:
    """A header, the tokens comment and the channels with a meaning stand in schemas/http.py alone."""
    sources = {str(path.relative_to(ROOT)): path for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert len(sources) > 200
    assert OWN_WORDS.keys() <= sources.keys()
    assert {
        name: words for name, path in sources.items() if name not in OWN_WORDS and (words := shared_words(path))
    } == {}


@given(st.text(min_size=1), st.integers(min_value=0, max_value=http.VERSION_MAX))
def test_a_label_gives_its_run_and_version_back(run_id: str, version: int) -> None:
    """parse_version_label is the inverse of version_label, also for a run id that holds slashes."""
    assert http.parse_version_label(http.version_label(run_id, version)) == (run_id, version)


@pytest.mark.parametrize("label", ["default", "", "/3", "r/", "r/x", "r/-1", "r/٣", f"r/{http.VERSION_MAX + 1}"])
def test_what_is_no_label_has_no_version(label: str) -> None:
    """Anything but `<run_id>/<version>` is an unknown version, like vLLM's own `default`."""
    assert http.parse_version_label(label) is None


def test_the_base_weights_have_a_label() -> None:
    """An engine that has loaded no published version serves version 0 of the run `base`."""
    assert http.parse_version_label(http.BASE_LABEL) == ("base", 0)
