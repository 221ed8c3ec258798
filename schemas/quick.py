"""`quick`: a frozen dataclass whose `__init__` fills its slots directly.

Invariant: equal to the `__init__` that `dataclass` writes (a test compares them), which in a frozen class goes through
`object.__setattr__` for every field; a fact of a call has a hundred fields. While it is made, an object belongs to a class
of the same slots without a guard, so that its fields are set by plain assignment, which is what Python is quickest at.
"""

import dataclasses
from functools import cache
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type)
SET_CLASS = object.__dict__["__class__"].__set__


@cache
def unguarded(kind: type) -> Any:  # the same fields, and nothing that a checker would see
    """A class of the same slots that lets them be set; an object of it becomes one of `kind` by its `__class__`.

    Only for dataclasses with slots and without bases. One class per kind.
    """
    return type(kind.__name__, (), {"__slots__": tuple(field.name for field in dataclasses.fields(kind))})


def quick(kind: Kind) -> Kind:
    """The same class. Only for dataclasses with slots, without `__post_init__`, all or none of it by keyword."""
    arguments, lines = [], []
    scope: dict[str, Any] = {"absent": object(), "set_class": SET_CLASS, "kind": kind, "open": unguarded(kind)}
    for field in dataclasses.fields(kind):
        name, value = field.name, field.name
        if field.default is not dataclasses.MISSING:
            scope[f"default_{name}"] = field.default
            arguments.append(f"{name}=default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            scope[f"make_{name}"] = field.default_factory
            arguments.append(f"{name}=absent")
            value = f"make_{name}() if {name} is absent else {name}"
        else:
            arguments.append(name)
        lines.append(f"    self.{name} = {value}")
    head = ["self", "*"] if field.kw_only else ["self"]
    body = [
        f"def __init__({', '.join(head + arguments)}):",
        "    set_class(self, open)",
        *lines,
        "    set_class(self, kind)",
    ]
    exec("\n".join(body), scope)  # noqa: S102 - our own fields
    kind.__init__ = scope["__init__"]  # type: ignore[misc]  # the point of it
    return kind
