"""Class- and module-level wrappers around torch functions, installed once and removable.

A wrapper only observes: it calls the original with the caller's arguments and returns its result unchanged.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ampscope.hooks.quiet import is_quiet

INVISIBLE_FILE = "<frozen importlib._bootstrap of ampscope>"


@dataclass
class Call:
    """One call of a wrapped function, before it runs. `before` may replace `args` by equal ones: to look into a
    generator means to hand on a fresh one."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """The argument at `position` (self counts as 0 in methods), or by `name`."""
        if len(self.args) > position:
            return self.args[position]
        return self.kwargs.get(name, default)


Before = Callable[[Call], Any]
After = Callable[[Call, Any, Any, BaseException | None], None]
"""Gets the call, what `before` returned, the result, and the exception that the original raised."""


def never() -> bool:
    return False


DECLINED: Any = object()
"""What a shortcut's `before` returns for a call that it leaves to the ordinary hooks."""


class Gate(Protocol):
    """Who offers shortcuts."""

    on: bool
    """They are taken now."""
    own_s: float
    """Seconds that they have taken beyond the originals."""

    def failed(self, error: Exception) -> None:
        """A shortcut raised."""


@dataclass
class Shortcut:
    """A cheaper way to observe one function, taken while `gate.on`. It may raise: then `gate` is told."""

    gate: Gate
    before: Callable[[tuple[Any, ...], dict[str, Any]], Any]
    """Gets the arguments; returns a token for `after`, or DECLINED."""
    after: Callable[[Any, Any, BaseException | None], None]
    """Gets the token, the result, and the exception that the original raised."""

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        began = time.perf_counter()
        try:
            return self.before(args, kwargs)
        except Exception as error:
            self.gate.failed(error)
            return DECLINED
        finally:
            self.gate.own_s += time.perf_counter() - began

    def end(self, token: Any, result: Any, error: BaseException | None) -> None:
        began = time.perf_counter()
        try:
            self.after(token, result, error)
        except Exception as failure:
            self.gate.failed(failure)
        finally:
            self.gate.own_s += time.perf_counter() - began


def unseen_by_warnings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the frame of a wrapper out of what `warnings.warn(stacklevel=2)` counts, so that a warning of torch
    still names the user's line. The warnings module skips frames of the import system, and knows them by file."""
    function.__code__ = function.__code__.replace(co_filename=INVISIBLE_FILE)
    return function


def leave_out_caller(error: BaseException) -> None:
    """From Python 3.11 on a re-raise adds no entry for its frame: the traceback is the plain one."""
    trace = error.__traceback__
    if trace is not None:
        error.__traceback__ = trace.tb_next


class Patches:
    """What was replaced, so that it can be put back. `before` and `after` must not raise: the collector's guard
    sees to that."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._of_loop: list[tuple[Any, str, Any, Any]] = []
        self._stand_ins: list[tuple[Any, str, Any, Any]] = []
        self._asleep = False

    def wrap(
        self,
        owner: Any,
        name: str,
        before: Before | None = None,
        after: After | None = None,
        *,
        aliases: tuple[Any, ...] = (),
        idle: Callable[[], bool] = never,
        shortcut: Shortcut | None = None,
        loop: bool = False,
        stand_in: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Replace `owner.name`, and the same object under the same name in each of `aliases`. While `idle()` holds
        the original is called and nothing else; while a shortcut is taken, it is asked first. `loop`: a training
        loop calls it in every step, and `suspend` takes it away. `stand_in(original, observed)` makes what observes
        it then instead.

        Does nothing when torch has no such name: features are detected, not assumed.
        """
        original = _current(owner, name)
        if original is None:
            return

        is_compiling = torch.compiler.is_compiling

        @unseen_by_warnings
        @functools.wraps(original)
        def observed(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or is_quiet():
                return original(*args, **kwargs)
            if idle() or (loop and self._asleep):
                try:
                    return original(*args, **kwargs)
                except BaseException as error:
                    leave_out_caller(error)
                    raise
            if shortcut is not None and shortcut.gate.on:
                token = shortcut.begin(args, kwargs)
                if token is not DECLINED:
                    try:
                        result = original(*args, **kwargs)
                    except BaseException as error:
                        shortcut.end(token, None, error)
                        leave_out_caller(error)
                        raise
                    shortcut.end(token, result, None)
                    return result
            call = Call(args, kwargs)
            token = before(call) if before is not None else None
            try:
                result = original(*call.args, **call.kwargs)
            except BaseException as error:
                if after is not None:
                    after(call, token, None, error)
                leave_out_caller(error)
                raise
            if after is not None:
                after(call, token, result, None)
            return result

        for place in (owner, *aliases):
            if place is owner or getattr(place, name, None) is original:
                setattr(place, name, observed)
                self._replaced.append((place, name, original, observed))
                if loop:
                    self._of_loop.append(self._replaced[-1])
                elif stand_in is not None:
                    other = unseen_by_warnings(functools.wraps(original)(stand_in(original, observed)))
                    self._stand_ins.append((place, name, other, observed))

    def suspend(self) -> None:
        """Take away what was placed for the loop, until `resume`."""
        self._asleep = True
        for owner, name, other, observed in (*self._of_loop, *self._stand_ins):
            if _current(owner, name) is observed:
                setattr(owner, name, other)

    def resume(self) -> None:
        """End `suspend`."""
        for owner, name, other, observed in (*self._of_loop, *self._stand_ins):
            if _current(owner, name) is other:
                setattr(owner, name, observed)
        self._asleep = False

    def remove(self) -> None:
        """Put the originals back where nobody else has wrapped ours since."""
        self.resume()
        for owner, name, original, observed in reversed(self._replaced):
            if _current(owner, name) is observed:
                setattr(owner, name, original)
        self._replaced.clear()
        self._of_loop.clear()
        self._stand_ins.clear()


def _current(owner: Any, name: str) -> Any:
    return vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)
