"""Modules that others import at the start and an agent never uses: loaded when something of them is wanted."""

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

LATER = {"asyncio": (), "importlib.metadata": ("entry_points",)}
"""By name, with the functions that are imported by name. structlog imports the first for loggers that are awaited,
pydantic the second, and all of `email` with it, to look for plugins, which an agent has none of: a tenth of the start
together (measured)."""
_replacing = threading.Lock()


class Later(ModuleType):
    """Stands for a module that is not loaded yet; whatever is asked of it, the module itself answers.

    Args:
        name: the module's.
        functions: some of its functions; that they are asked for does not load it, a call does.
    """

    def __init__(self, name: str, functions: tuple[str, ...]) -> None:
        super().__init__(name)
        if functions:  # else asking for one of them would ask for the path first, which the module itself would answer
            spec = importlib.util.find_spec(name)
            self.__path__ = [] if spec is None else list(spec.submodule_search_locations or ())
        for function in functions:
            setattr(self, function, self._when_called(function))

    def __getattr__(self, attribute: str) -> Any:
        return getattr(_loaded(self), attribute)

    def _when_called(self, function: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            return getattr(_loaded(self), function)(*arguments, **named)

        return call


def load_later() -> None:
    """From now on the modules of `LATER` are loaded when they are used, but for those that are there already."""
    for name, functions in LATER.items():
        if name not in sys.modules:
            sys.modules[name] = Later(name, functions)
            package, _, part = name.rpartition(".")
            if package:
                setattr(sys.modules[package], part, sys.modules[name])


def _loaded(stand_in: Later) -> ModuleType:
    """The module itself, in its stand-in's place from the first time on."""
    name = stand_in.__name__
    with _replacing:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
    return importlib.import_module(name)
