"""Sources with marks: where the run recorded which call, and which line the finding names.

A line may end in `#: CALL[>TARGET][/OBJECT] …` for recorded calls and `#! …` where it is the finding's line too.
The marks are no part of the source.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

from ampscope.diagnose.finding import Change, Finding, Where
from ampscope.patch.plan import Plan, plan
from ampscope.patch.project import Project
from ampscope.patch.sites import Facts, Site
from ampscope.patch.sources import SourceFile

FILE = "/home/me/project/train.py"
_MARK = re.compile(r"[ \t]*#(?P<kind>[:!])(?P<calls>[^\n]*)$")
_CALL = re.compile(
    r"(?P<call>[\w.]+)(>(?P<target>[\w#]+))?(/(?P<object>[\w#]+))?(\*(?P<n>\d+))?(~(?P<scaled>\w+))?"
)


@dataclass(frozen=True)
class Marked:
    """A source without its marks, and what these said."""

    text: str
    sites: tuple[Site, ...]
    line: int | None


def read_marks(source: str, file: str = FILE) -> Marked:
    """Takes a source with marks apart."""
    lines, sites, line = [], [], None
    for number, raw in enumerate(textwrap.dedent(source).lstrip("\n").splitlines(), 1):
        mark = _MARK.search(raw)
        lines.append(raw[: mark.start()] if mark else raw)
        if mark is None:
            continue
        line = number if mark["kind"] == "!" else line
        for call in _CALL.finditer(mark["calls"]):
            site = Site(
                call["call"],
                file,
                number,
                call["object"],
                call["target"],
                n=int(call["n"] or 1),
                scaled=call["scaled"],
            )
            sites.append(site)
    after = [s for s in sites if s.call == "scaler.step"]
    last = after[-1].target if after else None
    full = tuple(
        replace(s, next_step=next((a.target for a in after if a.line >= s.line), last)) for s in sites
    )
    return Marked("\n".join(lines) + "\n", full, line)


def make_plan(
    code: str,
    source: str,
    facts: Facts | None = None,
    change: dict[str, str] | None = None,
    claim: str = "",
    op: str | None = None,
    module: str | None = None,
    diff: str = "",
) -> tuple[Plan, str]:
    """The plan for one finding, and the source that it starts from."""
    marked = read_marks(source)
    where = Where(file=FILE, line=marked.line, op=op, module=module)
    finding = Finding(code, "", "critical", where, claim, "", Change(set=change or {}, diff=diff))
    file = SourceFile(Path(FILE), "train.py", marked.text.encode(), FILE)
    project = Project.of_sources((file,), marked.sites, facts or Facts())
    return plan(project, [finding]), marked.text


def patched(code: str, source: str, **known: object) -> str:
    """The source after the fix; fails when it was refused. The keywords are those of `make_plan`."""
    made, _ = make_plan(code, source, **known)  # type: ignore[arg-type]
    assert not made.refused, made.refused[0][1]
    return made.patches[0].after.decode()


def refusal(code: str, source: str, **known: object) -> str:
    """Why the fix was refused; fails when it was made."""
    made, _ = make_plan(code, source, **known)  # type: ignore[arg-type]
    assert not made.patches
    return made.refused[0][1]


def text(source: str) -> str:
    """What a patch is expected to give."""
    return textwrap.dedent(source).lstrip("\n")
