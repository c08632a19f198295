"""Which function edits the source for which code. One editor makes all edits of a finding or raises Refused."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module

from ampscope.patch.project import Case
from ampscope.patch.refused import Refused

Editor = Callable[[Case], None]
"""Puts its edits into `case.edits(tree)`. Whoever calls it drops them when it raises Refused."""

_EDITORS: dict[str, Editor] = {}


def editor(*codes: str) -> Callable[[Editor], Editor]:
    """Decorator: this function edits for these codes."""

    def register(function: Editor) -> Editor:
        for code in codes:
            known = _EDITORS.get(code)
            if known is not None and known.__qualname__ != function.__qualname__:
                raise ValueError(f"{code} has two editors: {known.__qualname__} and {function.__qualname__}")
            _EDITORS[code] = function
        return function

    return register


def editors() -> dict[str, Editor]:
    """Every editor by code. A new file in `patch/editors` is found by itself."""
    package = import_module("ampscope.patch.editors")
    for module in pkgutil.iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    return dict(_EDITORS)


def edit(case: Case) -> None:
    """Make the edits of one finding: by the editor of its code, else by its `change.set`.

    Raises Refused when there is neither, or the edit is not safely mechanical.
    """
    from ampscope.patch.editors.arguments import set_arguments

    chosen = editors().get(case.finding.code)
    if chosen is not None:
        chosen(case)
    elif case.finding.change.set:
        set_arguments(case)
    else:
        raise Refused("this advice is no mechanical edit")
