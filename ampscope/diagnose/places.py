"""Where in the user's code something happened: grouping of calls and rows by file and line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ampscope.diagnose.calls import Call
from ampscope.diagnose.finding import Where

T = TypeVar("T")
Place = tuple[str | None, int | None]


def by_place(items: Iterable[T], call_of: Callable[[T], Call]) -> list[tuple[Place, list[T]]]:
    """The items grouped by the place of their call, places in order of first occurrence."""
    groups: dict[Place, list[T]] = {}
    for item in items:
        groups.setdefault(call_of(item).place, []).append(item)
    return list(groups.items())


def steps_of(calls: Iterable[Call]) -> tuple[int, int] | None:
    """First and last step of some calls; None when no step is known."""
    steps = [c.step for c in calls if c.step >= 0]
    return (min(steps), max(steps)) if steps else None


def at(calls: Sequence[Call], *, module: str | None = None, tensor: str | None = None) -> Where:
    """The place of the first of these calls, over the steps of all of them."""
    first = calls[0]
    return Where(module=module, tensor=tensor, file=first.file, line=first.line, steps=steps_of(calls))
