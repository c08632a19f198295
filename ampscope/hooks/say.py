"""Lines for the user, on stderr. Must not fail, wait or end up anywhere else: a script may close its streams."""

from __future__ import annotations

import contextlib
import sys

from ampscope.hooks.settings import Settings


def say(settings: Settings, text: str) -> None:
    """One line with the lede `[ampscope]`, unless the user wants none or nobody can hear it."""
    # print() would take a stderr that is None for stdout, which belongs to the script.
    if settings.quiet or sys.stderr is None:
        return
    with contextlib.suppress(Exception):
        print(f"[ampscope] {text}", file=sys.stderr, flush=True)
