"""`quick`: a frozen dataclass whose `__init__` fills its slots directly.

Invariant: equal to the `__init__` that `dataclass` writes (a test compares them), which in a frozen class goes through
`object.__setattr__` for every field and takes two and a half times as long; a fact of a call has a hundred fields.
"""

import dataclasses
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type)


def quick(kind: Kind) -> Kind:
    """The same class. Only for dataclasses with slots, without `__post_init__`, all or none of it by keyword."""
    arguments, lines = [], []
    scope: dict[str, Any] = {"absent": object()}
    for field in dataclasses.fields(kind):
        name, value = field.name, field.name
        scope[f"set_{name}"] = kind.__dict__[name].__set__
        if field.default is not dataclasses.MISSING:
            scope[f"default_{name}"] = field.default
            arguments.append(f"{name}=default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            scope[f"make_{name}"] = field.default_factory
            arguments.append(f"{name}=absent")
            value = f"make_{name}() if {name} is absent else {name}"
        else:
            arguments.append(name)
        lines.append(f"    set_{name}(self, {value})")
    head = ["self", "*"] if field.kw_only else ["self"]
    exec("\n".join([f"def __init__({', '.join(head + arguments)}):", *lines]), scope)  # noqa: S102 - our own fields
    kind.__init__ = scope["__init__"]  # type: ignore[misc]  # the point of it
    return kind
