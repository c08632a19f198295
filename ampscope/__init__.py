"""ampscope: see, explain and fix the numerics of mixed-precision training in PyTorch.

The public API is exactly `__all__`. Every name is loaded when it is first used: `import ampscope` costs
nothing and imports neither torch nor a reader, because the recorded process imports it too.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

__all__ = ["Recorder", "__version__", "diagnose", "open_trace"]

_HOMES = {"Recorder": "ampscope.hooks.recorder", "open_trace": "ampscope.trace.reader"}


class _Diagnose(ModuleType):
    """The package `ampscope.diagnose`, which is also the function `ampscope.diagnose(trace)`."""

    def __call__(self, *args: object, **options: object) -> object:
        return self.__dict__["diagnose"](*args, **options)


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # The import system binds the subpackage here, under the name of the function.
        if name == "diagnose" and isinstance(value, ModuleType):
            value.__class__ = _Diagnose
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("ampscope")
        except PackageNotFoundError:
            return "0+unknown"
    if name == "diagnose":
        return import_module("ampscope.diagnose")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
