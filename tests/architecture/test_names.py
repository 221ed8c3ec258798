"""A name means one thing, and says what it is."""

import ast
from collections import defaultdict

from tests.architecture.tree import written

TWO_MEANINGS: dict[str, str] = {}
"""Class names that two modules define, each with the reason."""

NO_NOUNS = {"found", "asked", "wanted", "given", "told", "said", "shown", "meant", "known", "made", "going"}
"""Participles: a thing is not named by the act of somebody."""


def test_a_class_name_has_one_meaning() -> None:
    """No two modules define a class of one name, but those listed above with a reason."""
    owners: dict[str, list[str]] = defaultdict(list)
    for path, tree in written().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners[node.name].append(path)
    assert {name: paths for name, paths in owners.items() if len(paths) > 1 and name not in TWO_MEANINGS} == {}


def test_variables_and_parameters_are_nouns() -> None:
    """No variable, parameter or field is called by a bare participle."""
    participles = defaultdict(set)
    for path, tree in written().items():
        for node in ast.walk(tree):
            name = _bound(node)
            if name is not None and name.strip("_") in NO_NOUNS:
                participles[path].add(name)
    assert dict(participles) == {}


def _bound(node: ast.AST) -> str | None:
    """The name that a node binds, if it binds one."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else None
