"""From the findings of a run to patches of its source: what can be edited, and why the rest cannot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ampscope.diagnose.finding import Finding
from ampscope.patch.editor import edit
from ampscope.patch.edits import Edits
from ampscope.patch.project import Case, Project
from ampscope.patch.refused import Refused


@dataclass(frozen=True)
class FilePatch:
    """One file before and after. `shown` is its path as the diff names it."""

    path: Path
    shown: str
    before: bytes
    after: bytes


@dataclass(frozen=True)
class Plan:
    """`made` are the findings that the patches answer, `refused` the others with the reason."""

    patches: tuple[FilePatch, ...] = ()
    made: tuple[Finding, ...] = ()
    refused: tuple[tuple[Finding, str], ...] = ()


@dataclass
class _Draft:
    edits: dict[str, Edits] = field(default_factory=dict)
    made: list[Finding] = field(default_factory=list)
    refused: list[tuple[Finding, str]] = field(default_factory=list)


def plan(project: Project, findings: Iterable[Finding]) -> Plan:
    """The patches for `findings`, in their order: an edit that clashes with an earlier one is refused."""
    draft = _Draft()
    for finding in findings:
        case = Case(finding, project)
        try:
            edit(case)
            _accept(draft, case)
        except Refused as why:
            draft.refused.append((finding, str(why)))
    patches = tuple(_patch(edits) for _, edits in sorted(draft.edits.items()))
    changed = tuple(p for p in patches if p.after != p.before)
    return Plan(changed, tuple(draft.made), tuple(draft.refused))


def _accept(draft: _Draft, case: Case) -> None:
    """Add the edits of one finding, in all files or, when they clash or would not compile, in none."""
    merged: dict[str, Edits] = {}
    for path, edits in case.edited.items():
        both = Edits(edits.tree)
        if path in draft.edits:
            both.merge(draft.edits[path])
        both.merge(edits)
        both.code()
        merged[path] = both
    if not any(case.edited.values()):
        raise Refused("there is nothing to change in the source")
    draft.edits.update(merged)
    draft.made.append(case.finding)


def _patch(edits: Edits) -> FilePatch:
    file = edits.tree.file
    text = edits.code()
    return FilePatch(file.path, file.shown, file.data, text.encode(edits.tree.module.encoding))
