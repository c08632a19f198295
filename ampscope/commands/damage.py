"""Says on stderr which files of a run could not be read, for commands whose own output has no place for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampscope.trace.reader import Trace


def say_damage(trace: Trace) -> None:
    """Nothing for a trace that is whole."""
    if not trace.integrity.sound:
        print(
            f"[ampscope] warning: {trace.path.name}: {trace.integrity.sentence}", file=sys.stderr, flush=True
        )
