"""Modules that load when a test first uses them: every process of `make test` collects every file, and a client's SDK has
thousands of modules."""

import importlib.util
import sys
from types import ModuleType


def lazily(name: str) -> ModuleType:
    """Returns the module, which is loaded when it is first asked for a name. Raises ModuleNotFoundError."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(name=name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
