"""The file of this diagnosis could not be loaded, so it is not decided.

`ampscope diagnose` lists it under what could not be measured, with the error. Reinstall ampscope; if it stays
so, report it with that line.
"""

from __future__ import annotations

from ampscope.diagnose.rule import Found, Rule
from ampscope.diagnose.signals import Signals


def stand_in(module: str, error: Exception) -> Rule:
    """A rule for the file `ampNNN_some_name` that raises `error`; `ampscope explain` shows the text above."""

    def check(rule: Rule, signals: Signals) -> Found:
        raise error
        yield

    code, _, name = module.partition("_")
    return Rule(code.upper(), name.replace("_", "-"), "info", (), (), (), 0, check)
