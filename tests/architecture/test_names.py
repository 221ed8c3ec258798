"""A name means one thing, and says what it is."""

import ast
import re
from collections import defaultdict
from pathlib import PurePath

from tests.architecture.tree import written

TWO_MEANINGS: dict[str, str] = {}
"""Names of classes and type aliases that two modules define, each with the reason."""

NO_NOUNS = {"found", "asked", "wanted", "given", "told", "said", "shown", "meant", "known", "made", "going"} | {
    "begun",
    "heard",
    "spoken",
    "taken",
}
"""Participles: a thing is not named by the act of somebody."""

NO_MODULES = NO_NOUNS | {
    "ahead",
    "carrying",
    "counting",
    "dealing",
    "growing",
    "handed_over",
    "inside",
    "kept",
    "stand_in",
}
"""Words that say of a module when, where or how, and not what it holds; participles in -ed are found by their form."""

PARTICIPLE = re.compile("[a-z]+[^e]ed")

PARTICIPLE_MODULES = {
    "consumers/rewards/judged.py": "docs/rewards/rules.md tells people to import it",
    "examples/programs/confined.py": "what the page calls the process, and the reader of an example with it",
    "weights/carry/carrying.py": "beside `carrier.py`: the trainer's side of carriers, of which ADR 0031 speaks",
}
"""Modules that are called so all the same, each with the reason."""


def test_the_name_of_a_type_has_one_meaning() -> None:
    """No two modules define a class or a type alias of one name, but those listed above with a reason.

    A type variable means nothing outside its signature: several modules may have a `T`, but no class or alias may be
    called like it.
    """
    owners: dict[str, list[str]] = defaultdict(list)
    variables: dict[str, str] = {}
    for path, tree in written().items():
        for node in tree.body:
            name = _type_name(node)
            if name is not None and _is_type_variable(node):
                variables[name] = path
            elif name is not None:
                owners[name].append(path)
    for name, path in variables.items():
        owners[name].append(path)
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


def test_modules_and_folders_are_nouns() -> None:
    """No module and no folder is called by a bare participle, but those listed above, which are there."""
    places = {place for path in written() for place in (PurePath(path), *PurePath(path).parents)}
    bare = {place.as_posix() for place in places if place.stem in NO_MODULES or PARTICIPLE.fullmatch(place.stem)}
    assert bare == set(PARTICIPLE_MODULES)


def _type_name(node: ast.stmt) -> str | None:
    """The name of the public class or type alias that a statement defines, if it defines one."""
    if isinstance(node, ast.ClassDef):
        return node.name if not node.name.startswith("_") else None
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_type(node.value):
        name = node.targets[0].id
        return name if name[0].isupper() and (len(name) == 1 or not name.isupper()) else None
    return None


def _is_type_variable(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)


def _is_type(value: ast.expr) -> bool:
    """Returns whether a value reads as a type: a name, a type with parameters, a union, or a call of `TypeVar` or `NewType`."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name[0].isupper() or name in {"bool", "bytes", "dict", "float", "int", "list", "set", "str", "tuple"}
        case ast.Subscript(value=generic):
            return _is_type(generic)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _is_type(left) and (_is_type(right) or isinstance(right, ast.Constant))
        case ast.Call(func=function):
            return ast.unparse(function) in {"NewType", "ParamSpec", "TypeVar"}
    return False


def _bound(node: ast.AST) -> str | None:
    """The name that a node binds, if it binds one."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else None
