"""How many casts to float16 a line of the user's program writes down: `.half()`, `.to(torch.float16)`. Reads bytecode.

A cast that changes nothing is no op, so that a census cannot see it; under another autocast dtype it would be one.
"""

from __future__ import annotations

import dis
from bisect import bisect_right
from collections import Counter
from types import CodeType

_FLOAT16 = ("float16", "half")
_BY_DTYPE = ("to", "type")

_COUNTS: dict[CodeType, Counter[int]] = {}


def half_casts(code: CodeType, line: int) -> int:
    """Casts to float16 among the instructions of `line` of `code`, functions defined within it not counted."""
    if not any(name in code.co_names for name in _FLOAT16):
        return 0
    counts = _COUNTS.get(code)
    if counts is None:
        counts = _COUNTS[code] = _count(code)
    return counts[line]


def _count(code: CodeType) -> Counter[int]:
    starts = [(begin, line) for begin, _, line in code.co_lines()]
    found: Counter[int] = Counter()
    names: list[str | None] = [None, None]
    for step in dis.get_instructions(code):
        if step.opname in ("CACHE", "PUSH_NULL", "PRECALL", "EXTENDED_ARG"):
            continue
        name = step.argval if step.opname in ("LOAD_ATTR", "LOAD_METHOD") else None
        by_method = name == "half" and names[0] not in _BY_DTYPE
        if by_method or (name in _FLOAT16 and names[0] in _BY_DTYPE):
            line = starts[bisect_right(starts, (step.offset, 1 << 30)) - 1][1]
            if line is not None:
                found[line] += 1
        names = [names[1], name]
    return found
