"""A stand-in for any code at all: it has every name and answers everything. Tests that stop with it as they did with some code are broken."""

import builtins
import dis
import symtable
import sys
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any

OPERATORS = "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor"
SAME = "neg pos invert abs round trunc floor ceil getitem enter copy"
TRUE = "eq ne lt le gt ge contains bool instancecheck subclasscheck"
NUMBERS: dict[str, Any] = {
    "int": 1,
    "index": 1,
    "len": 0,
    "hash": 0,
    "float": 1.0,
    "complex": 1j,
    "str": "",
    "format": "",
}


class Anything:
    """An answer that fits."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        """It is as before."""

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        """As a decorator it changes nothing."""
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else self

    def __iter__(self) -> Iterator[Any]:
        """As many as are unpacked, else none."""
        return iter([self] * _unpacked(sys._getframe(1)))

    def __next__(self) -> Any:
        return self

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        return (object,)

    def __exit__(self, *_: object) -> None:
        """It swallows nothing."""


def _unpacked(frame: FrameType) -> int:
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset == frame.f_lasti and instruction.opname == "UNPACK_SEQUENCE":
            return instruction.arg or 0
    return 0


def _install() -> None:
    def always(answer: Any) -> Any:
        return lambda *_, **__: answer

    for name in SAME.split():
        setattr(Anything, f"__{name}__", lambda self, *_: self)
    for name in OPERATORS.split():
        for form in ("", "r", "i"):
            setattr(Anything, f"__{form}{name}__", lambda self, _: self)
    for name in TRUE.split():
        setattr(Anything, f"__{name}__", always(answer=True))
    for name, number in NUMBERS.items():
        setattr(Anything, f"__{name}__", always(number))


_install()


class AnythingModule(ModuleType):
    """What `import` finds in the tests."""

    def __init__(self, name: str, source: str, hidden: frozenset[str]) -> None:
        """`import *` brings the names that the tests use and nobody else has. Raises SyntaxError."""
        super().__init__(name)
        tables, used = [symtable.symtable(source, "tests", "exec")], set[str]()
        for table in tables:  # which grows
            tables += table.get_children()
            used |= {each.get_name() for each in table.get_symbols() if each.is_referenced() and each.is_global()}
            if table.get_type() == "module":
                used |= {each.get_name() for each in table.get_symbols() if each.is_referenced()}
        self.__dict__["__all__"] = [one for one in used if one not in hidden and not hasattr(builtins, one)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()
