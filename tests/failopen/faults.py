"""Every function of the recorder by name, and a way to make one of them raise. Finds them by looking: what is added
later is injected into without a word here. Runs in the process of the victim.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import inspect
import pkgutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

PACKAGES = ("ampscope.hooks", "ampscope.numerics", "ampscope.trace")
MODULES = ("ampscope.overrides",)
READERS = ("reader", "database", "compact", "integrity", "locate", "table", "schema")
"""Modules of `trace` that a training process never calls."""


class InjectedError(Exception):
    """Stands for any error of ours."""


@dataclass(frozen=True)
class Point:
    """A function or method, or (by `inner`) a function that it defines when it runs."""

    module: str
    name: str
    function: FunctionType = field(compare=False)
    inner: CodeType | None = field(default=None, compare=False)

    def __str__(self) -> str:
        inner = f".{self.inner.co_name}" if self.inner is not None else ""
        return f"{self.module.removeprefix('ampscope.')}:{self.name}{inner}"

    @property
    def code(self) -> CodeType:
        return self.function.__code__ if self.inner is None else self.inner


def points() -> list[Point]:
    """All of the recorder, in a fixed order."""
    found: list[Point] = []
    for module in _modules():
        for name, function in _functions(module, module.__name__, ""):
            found.append(Point(module.__name__, name, function))
            found += [
                Point(module.__name__, name, function, code)
                for code in function.__code__.co_consts
                if isinstance(code, CodeType) and not code.co_name.startswith("<")
            ]
    return found


def _modules() -> Iterator[ModuleType]:
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        for entry in pkgutil.iter_modules(path):
            if entry.name not in READERS and entry.name != "kernel":
                yield importlib.import_module(f"{package}.{entry.name}")
    for name in MODULES:
        yield importlib.import_module(name)


def _functions(owner: Any, module: str, prefix: str) -> Iterator[tuple[str, FunctionType]]:
    for name, value in list(vars(owner).items()):
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, property):
            value = value.fget
        if isinstance(value, type):
            if value.__module__ == module and value is not owner:
                yield from _functions(value, module, f"{prefix}{name}.")
            continue
        value = inspect.unwrap(value) if callable(value) else value
        # Methods that dataclasses and protocols generate have no file of their own.
        if (
            isinstance(value, FunctionType)
            and value.__module__ == module
            and value.__code__.co_filename == sys.modules[module].__file__
        ):
            yield f"{prefix}{name}", value


class Calls:
    """Counts the calls of the function that was replaced, raises from the `first` on, runs the original before."""

    def __init__(self, original: FunctionType | None, first: int, only: bool) -> None:
        self.original = original
        self.first = first
        self.only = only
        self.count = 0
        self.raised = 0

    def __call__(self, args: Any, kwargs: Any) -> Any:
        self.count += 1
        if self.count == self.first or (self.count > self.first and not self.only):
            self.raised += 1
            raise InjectedError("injected")
        assert self.original is not None
        return self.original(*args, **kwargs)


def inject(point: Point, first: int = 1, only: bool = False) -> Calls:
    """Make `point` raise at its call number `first` and at all later ones, or `only` at that one.

    The code object is replaced: whoever holds the function, under whatever name, calls the new one.
    """
    function = point.function
    original = None
    if point.inner is None:
        original = FunctionType(
            function.__code__, function.__globals__, point.name, function.__defaults__, function.__closure__
        )
        original.__kwdefaults__ = function.__kwdefaults__
    calls = Calls(original, first, only)
    builtins._injected = calls  # type: ignore[attr-defined]
    raising = _raising_code(point.code.co_freevars)
    if point.inner is None:
        function.__code__ = raising
    else:
        consts = tuple(raising if c is point.inner else c for c in function.__code__.co_consts)
        function.__code__ = function.__code__.replace(co_consts=consts)
    return calls


def _raising_code(free: tuple[str, ...]) -> CodeType:
    """Code of a function of any arguments that closes over the variables `free`, as the one it replaces does."""
    names = ", ".join(free)
    text = (
        f"def make({names}):\n"
        "    def replaced(*args, **kwargs):\n"
        f"        ({names}{',' if names else ''})\n"
        "        return _injected(args, kwargs)\n"
        "    return replaced\n"
    )
    if not free:
        text = text.replace("        ()\n", "")
    made: dict[str, Any] = {}
    exec(text.replace("__class__", "cls"), made)
    code: CodeType = made["make"](*[None] * len(free)).__code__
    return code


@dataclass
class Seen:
    """Names of the points that ran, and of those through which torch or the session enters a collector."""

    reached: set[str] = field(default_factory=set)
    entries: set[str] = field(default_factory=set)


@contextlib.contextmanager
def entries() -> Iterator[Seen]:
    """Note what runs inside the block, on every thread."""
    from ampscope.hooks.collector import Collector
    from ampscope.hooks.deferred import DeferredScalars

    known = {point.code: str(point) for point in points()}
    seen = Seen()
    guarded, put = Collector.guarded, DeferredScalars.put

    def note(function: Any) -> None:
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code in known:
            seen.entries.add(known[code])

    def noting_guarded(self: Any, function: Any) -> Any:
        note(function)
        return guarded(self, function)

    def noting_put(self: Any, tensor: Any, receive: Any) -> None:
        note(receive)
        put(self, tensor, receive)

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code in known:
            seen.reached.add(known[frame.f_code])

    setattr(Collector, "guarded", noting_guarded)  # noqa: B010
    setattr(DeferredScalars, "put", noting_put)  # noqa: B010
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def classes() -> list[str]:
    """Names of all classes of collectors, dispatch modes and profiles."""
    from ampscope.hooks.collector import Collector
    from ampscope.hooks.dispatch import OpMode
    from ampscope.hooks.profiler import OpProfile

    for _ in _modules():
        pass
    found: set[type[Any]] = {OpMode, OpProfile}
    todo: list[type[Any]] = [Collector, OpMode]
    while todo:
        below = [cls for cls in todo.pop().__subclasses__() if cls.__module__.startswith("ampscope.")]
        found.update(below)
        todo += below
    return sorted(cls.__name__ for cls in found)
