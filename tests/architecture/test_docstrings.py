"""A docstring begins with a noun or a verb, so that a stranger understands it at the first reading."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.tree import written

PRONOUNS = re.compile(
    r"(as|he|how|it|of|she|such|they|those|what(ever)?|when(ever)?|where(ver)?|whether|which(ever)?|who(ever|m|se)?|why)\b",
    re.IGNORECASE,
)
"""First words that stand for a noun which comes later, or not at all."""
BARE_DETERMINERS = re.compile(
    r"(both|each|one|that|these|this)(\W*$|[^\w\s]| (a|about|after|an|and|are|as|at|before|below|between|but|by|can|do|does|for"
    r"|from|has|have|if|in|into|is|it|may|must|of|on|or|over|per|says|somebody|than|that|the|there|they|to|under|was|were|what"
    r"|when|where|which|while|who|whoever|whom|whose|will|with|without)\b)",
    re.IGNORECASE,
)
"""A first word that is a determiner before a noun (`One row per step.`), and a pronoun before any of these."""
MEASURE = re.compile(r"How (far|long|many|much|often) ")
"""A question that the docstring of a field may begin with: the value of the field is the reply."""


def test_no_docstring_begins_with_a_pronoun() -> None:
    """The first word of a docstring is no pronoun.

    The rule sees words, not grammar: a noun phrase (`The steps of a group, newest first.`) may describe whatever has a
    value, and a verb without a subject (`Returns ...`) whatever does something.
    """
    pronouns = [
        f"{path}:{line}: {text[:60]}"
        for path, tree in written("bench", "infra", "tests/architecture").items()
        for line, text, is_field in _docstrings(tree)
        if _begins_with_a_pronoun(text) and not (is_field and MEASURE.match(text))
    ]
    assert pronouns == []


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        ("What a person asks.", True),
        ("Of a group: empty.", True),
        ("One that nobody uses.", True),
        ("Each, in order.", True),
        ("One row per step.", False),
        ("Each row of the pool.", False),
        ("Returns what a person asked.", False),
        ("The members of a group.", False),
    ],
)
def test_the_rule_tells_a_pronoun_from_a_determiner(text: str, is_wrong: bool) -> None:
    """A word like `one` is wrong only where no noun follows it."""
    assert _begins_with_a_pronoun(text) == is_wrong


def _begins_with_a_pronoun(text: str) -> bool:
    return bool(PRONOUNS.match(text) or BARE_DETERMINERS.match(text))


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """Line, text and whether it is a field's, of each docstring of a module; a field's stands behind its assignment."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for before, statement in zip([None, *node.body], node.body, strict=False):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                is_field = isinstance(before, ast.Assign | ast.AnnAssign)
                if isinstance(text, str) and (before is None or is_field):
                    yield statement.lineno, text.strip(), is_field
