"""A stand-in for any code at all: it has every name and answers everything. Tests that stop with it as they did with
some code are broken."""

import ast
import builtins
import dis
import os
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

    __slots__ = ("_used",)
    _used: "Uses"

    def __init__(self, used: "Uses") -> None:
        object.__setattr__(self, "_used", used)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        """Ignores the assignment."""

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        """Returns a decorated function unchanged."""
        self._used.note(sys._getframe(1))
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else self

    def __iter__(self) -> Iterator[Any]:
        """Yields as many items as are unpacked, else none."""
        self._used.note(sys._getframe(1))
        return iter([self] * _unpacked(sys._getframe(1)))

    def __next__(self) -> Any:
        self._used.note(sys._getframe(1))
        return self

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        return (object,)

    def __exit__(self, *_: object) -> None:
        """Lets every error pass."""


def _unpacked(frame: FrameType) -> int:
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset == frame.f_lasti and instruction.opname == "UNPACK_SEQUENCE":
            return instruction.arg or 0
    return 0


def _install() -> None:
    def always(answer: Any) -> Any:
        def noted(self: Anything, *_: Any, **__: Any) -> Any:
            self._used.note(sys._getframe(1))
            return self if answer is Anything else answer

        return noted

    operators = (f"{form}{name}" for name in OPERATORS.split() for form in ("", "r", "i"))
    answers: dict[str, Any] = NUMBERS | dict.fromkeys(TRUE.split(), True)
    for name, answer in (answers | dict.fromkeys([*SAME.split(), *operators], Anything)).items():
        setattr(Anything, f"__{name}__", always(answer))


_install()


class Uses:
    """The lines where the tests' file used the stand-in before it had tests, and so the part of it that depends on the
    code's results."""

    def __init__(self, module: str, tests: str, source: str) -> None:
        """tests: the file's name. Raises SyntaxError."""
        self._tests, self._statements = tests, ast.parse(source).body
        self._lines = set[int]()
        self.names = {module}
        """The names of the module, and those imported from it."""

    def note(self, frame: FrameType | None) -> None:
        """The line of the file on which the stand-in was used, by any call made there."""
        while frame is not None:
            code = frame.f_code
            if code.co_name == "<module>" and os.path.basename(code.co_filename) == self._tests:
                self._lines.add(frame.f_lineno)
            frame = frame.f_back

    def explain(self, error: BaseException, line: int) -> bool:
        """Returns whether other results could have kept the file from stopping there; line: 0 if on none of the file."""
        statement = next((one for one in self._statements if line in _lines_of(one)), None)
        if statement is None:
            return bool(self._lines)
        derived, names = self._derived(), _names(statement, whole=False)
        if isinstance(error, NameError) and error.name:
            return error.name in derived
        if self._uses(statement) or names & derived:
            return True
        judges = isinstance(error, AssertionError) or any(isinstance(one, ast.Raise) for one in ast.walk(statement))
        return judges and bool(names & self.names)  # `is` asks nobody

    def _uses(self, statement: ast.stmt) -> bool:
        return not self._lines.isdisjoint(_lines_of(statement))

    def _derived(self) -> set[str]:
        """The names that stand in a statement that used it, in a function that is named there, or beside such a name."""
        imports = (one for one in self._statements if isinstance(one, ast.Import | ast.ImportFrom))
        fixed = {(each.asname or each.name).partition(".")[0] for one in imports for each in one.names}
        users = set[str]().union(*(_names(one, whole=False) for one in self._statements if self._uses(one)))
        derived, before = set[str](), -1
        while before != len(derived):
            before = len(derived)
            for one in self._statements:
                names, name = _names(one, whole=True), getattr(one, "name", None)  # of a function or class
                if self._uses(one) or name in users or names & derived:
                    own = names if name is None or name in users else {name}
                    derived |= {each for each in own - fixed - self.names if not hasattr(builtins, each)}
        return derived


def _lines_of(statement: ast.stmt) -> range:
    first = min(one.lineno for one in (statement, *getattr(statement, "decorator_list", ())))
    return range(first, (statement.end_lineno or first) + 1)


def _names(statement: ast.AST, *, whole: bool) -> set[str]:
    """The names in it. whole: also in the bodies of functions, which run later."""
    names, nodes = set[str](), [statement]
    for node in nodes:  # which grows
        later = node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not whole else ()
        nodes += [one for one in ast.iter_child_nodes(node) if one not in later]
        if isinstance(node, ast.Name):
            names.add(node.id)
    return names


class AnythingModule(ModuleType):
    """The module that `import` finds in the tests."""

    def __init__(self, name: str, tests: str, source: str, hidden: frozenset[str]) -> None:
        """`import *` brings the names that the tests use and nobody else has. Raises SyntaxError."""
        super().__init__(name)
        self.__dict__["_claw_uses"] = Uses(name, tests, source)
        tables, used = [symtable.symtable(source, "tests", "exec")], set[str]()
        for table in tables:  # which grows
            tables += table.get_children()
            used |= {each.get_name() for each in table.get_symbols() if each.is_referenced() and each.is_global()}
            if table.get_type() == "module":
                used |= {each.get_name() for each in table.get_symbols() if each.is_referenced()}
        names = [one for one in used if one not in hidden and not hasattr(builtins, one)]
        self.__dict__.update(_claw_names=names, __all__=names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        uses: Uses = self.__dict__["_claw_uses"]
        uses.names.add(name)
        return Anything(uses)
