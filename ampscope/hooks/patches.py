"""Class- and module-level wrappers around torch functions, installed once and removable.

A wrapper only observes: it calls the original with the caller's arguments and returns its result unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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


def unseen_by_warnings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the frame of a wrapper out of what `warnings.warn(stacklevel=2)` counts, so that a warning of torch
    still names the user's line. The warnings module skips frames of the import system, and knows them by file."""
    function.__code__ = function.__code__.replace(co_filename=INVISIBLE_FILE)
    return function


def _leave_out_caller(error: BaseException) -> None:
    """From Python 3.11 on a re-raise adds no entry for its frame: the traceback is the plain one."""
    trace = error.__traceback__
    if trace is not None:
        error.__traceback__ = trace.tb_next


class Patches:
    """What was replaced, so that it can be put back. `before` and `after` must not raise: the collector's guard
    sees to that."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def wrap(
        self,
        owner: Any,
        name: str,
        before: Before | None = None,
        after: After | None = None,
        *,
        aliases: tuple[Any, ...] = (),
        idle: Callable[[], bool] = never,
    ) -> None:
        """Replace `owner.name`, and the same object under the same name in each of `aliases`. While `idle()` holds
        the original is called and nothing else.

        Does nothing when torch has no such name: features are detected, not assumed.
        """
        original = vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)
        if original is None:
            return

        @unseen_by_warnings
        @functools.wraps(original)
        def observed(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or is_quiet():
                return original(*args, **kwargs)
            if idle():
                try:
                    return original(*args, **kwargs)
                except BaseException as error:
                    _leave_out_caller(error)
                    raise
            call = Call(args, kwargs)
            token = before(call) if before is not None else None
            try:
                result = original(*call.args, **call.kwargs)
            except BaseException as error:
                if after is not None:
                    after(call, token, None, error)
                _leave_out_caller(error)
                raise
            if after is not None:
                after(call, token, result, None)
            return result

        for place in (owner, *aliases):
            if place is owner or getattr(place, name, None) is original:
                setattr(place, name, observed)
                self._replaced.append((place, name, original, observed))

    def remove(self) -> None:
        """Put the originals back where nobody else has wrapped ours since."""
        for owner, name, original, observed in reversed(self._replaced):
            current = vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)
            if current is observed:
                setattr(owner, name, original)
        self._replaced.clear()
