"""Modules that load when a test first uses them: every process of `make test` collects every file, and a client's SDK has
thousands of modules."""

import importlib.util
import sys
from types import ModuleType


class UnusedModule(importlib.util._LazyModule):  # the loader's own class, which loads at any name
    """A module that is not loaded yet. pytest asks whatever stands in a test's module whether it is a fixture or a mock, by
    names with an underscore: they load nothing."""

    def __getattribute__(self, name: str) -> object:
        if name.startswith("_"):
            return ModuleType.__getattribute__(self, name)
        return super().__getattribute__(name)


def lazy_module(name: str) -> ModuleType:
    """Returns the module, which is loaded when it is first asked for a name. Raises ModuleNotFoundError."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(name=name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__class__ = UnusedModule
    return module
