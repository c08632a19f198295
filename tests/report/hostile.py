"""Every string of a report replaced by one that tries to break out of its place."""

from __future__ import annotations

import dataclasses
from typing import cast

from ampscope.report.model import Column, HeatMap, Report

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=http://evil.example/x onerror=alert(1)>",
    "![x](http://evil.example/x.png) [a](javascript:alert(1))",
    "`` ` ``` | \\| || \\",
    "# heading\n\n- list\n\n***\n\n    code\n\n> quote @octocat #1 :boom:",
    "\"' onmouseover='x' style=\"background:url(http://evil.example)\"",
    "]]>--><!--</pre></code></table></svg></title></style><a href=//evil.example>",
    "\x1b[31m\u202e\udc80\x00 $x$ ~~y~~ &lt;b&gt; {{7*7}}",
)
FIXED = frozenset({"axis", "kind", "severity", "basis"})


def hostile(report: Report) -> Report:
    """`report` with every foreign string that is not empty replaced, in turn, by one of HOSTILE."""
    turn = iter(range(10**9))
    return cast(Report, _walk(report, turn))


def _walk(value: object, turn: object) -> object:
    if isinstance(value, str):
        return HOSTILE[next(turn) % len(HOSTILE)] if value else ""  # type: ignore[call-overload]
    if isinstance(value, tuple):
        return tuple(_walk(item, turn) for item in value)
    if isinstance(value, dict):
        return {_walk(key, turn): _walk(item, turn) for key, item in value.items()}
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    keep = {"name"} if isinstance(value, Column) else {"title"} if isinstance(value, HeatMap) else set()
    changes = {
        f.name: _walk(getattr(value, f.name), turn)
        for f in dataclasses.fields(value)
        if f.init and f.name not in FIXED and f.name not in keep
    }
    return dataclasses.replace(value, **changes)
