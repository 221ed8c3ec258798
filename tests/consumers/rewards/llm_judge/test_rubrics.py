"""A rubric is whole, or refused in one line."""

from pathlib import Path

import pytest

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.llm_judge.rubrics import read_rubric

WHOLE = """---
answer: json
scale: [1, 5]
criteria: {brief: as short as it can be, kind: to whoever asked}
examples:
  - {text: Go away., answer: '{"brief": 5, "kind": 1}'}
---
Judge the **style**.

---
Nothing else.
"""
BAD = {
    "no front matter": ("Judge it.", "front matter"),
    "front matter without end": ("---\nanswer: number\nscale: [0, 1]\n", "front matter"),
    "no YAML": ("---\nanswer: [\n---\nx", "not YAML"),
    "a list": ("---\n- answer\n---\nx", "must be fields"),
    "no scale": ("---\nanswer: number\n---\nx", "scale: Field required"),
    "no answer": ("---\nscale: [0, 1]\n---\nx", "answer: Field required"),
    "unknown field": ("---\nanswer: number\nscale: [0, 1]\ncolour: red\n---\nx", "colour"),
    "unknown form": ("---\nanswer: essay\nscale: [0, 1]\n---\nx", "answer"),
    "no body": ("---\nanswer: number\nscale: [0, 1]\n---\n \n", "no body"),
    "a scale the wrong way": ("---\nanswer: number\nscale: [1, 0]\n---\nx", "not below"),
    "a scale without end": ("---\nanswer: number\nscale: [0, .inf]\n---\nx", "scale"),
    "words for a number": ("---\nanswer: number\nscale: [0, 1]\nchoices: {a: 0, b: 1}\n---\nx", "choices"),
    "one word": ("---\nanswer: choice\nscale: [0, 1]\nchoices: {a: 0}\n---\nx", "two or more"),
    "words that are equal": ("---\nanswer: choice\nscale: [0, 1]\nchoices: {a: 0, A: 1}\n---\nx", "differ"),
    "YAML's yes": ("---\nanswer: choice\nscale: [0, 1]\nchoices: {yes: 0, no: 1}\n---\nx", "choices"),
    "a value outside": ("---\nanswer: choice\nscale: [0, 1]\nchoices: {a: 0, b: 2}\n---\nx", "outside"),
    "too many whole numbers": ("---\nanswer: choice\nscale: [0, 100]\n---\nx", "listed"),
    "a pair on another scale": ("---\nanswer: pair\nscale: [0, 5]\n---\nx", "share"),
    "no UTF-8": ("---\nanswer: \xff", "utf-8"),
}


def test_a_rubric_is_its_front_matter_and_its_body(tmp_path: Path) -> None:
    """Behind the second line of dashes everything is the body."""
    (tmp_path / "r.md").write_text(WHOLE)
    rubric = read_rubric(tmp_path / "r.md")
    assert rubric.instructions == "Judge the **style**.\n\n---\nNothing else."
    assert rubric.criteria == {"brief": "as short as it can be", "kind": "to whoever asked"}
    assert rubric.examples[0].text == "Go away."


def test_whole_numbers_are_choices(tmp_path: Path) -> None:
    """A choice without words is one of the whole numbers of the scale."""
    (tmp_path / "r.md").write_text("---\nanswer: choice\nscale: [0, 2]\n---\nx")
    assert read_rubric(tmp_path / "r.md").options == {"0": 0.0, "1": 1.0, "2": 2.0}


@pytest.mark.parametrize(("text", "word"), BAD.values(), ids=BAD)
def test_a_bad_rubric_is_refused_in_one_line(tmp_path: Path, text: str, word: str) -> None:
    """Which names the file and what is wrong."""
    path = tmp_path / "r.md"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ConsumerError, match=word) as refusal:
        read_rubric(path)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_rubric_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With its path."""
    with pytest.raises(ConsumerError, match=r"nowhere\.md"):
        read_rubric(tmp_path / "nowhere.md")
