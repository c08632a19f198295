"""A recorded run and the user's source that it ran: what every editor works on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst

from ampscope.diagnose.finding import Finding
from ampscope.patch.edits import Edits
from ampscope.patch.names import is_reference, root_name
from ampscope.patch.refused import Refused
from ampscope.patch.sites import Facts, Site, TraceView, of_kind, read_facts, read_sites
from ampscope.patch.sources import SourceFile, read_source
from ampscope.patch.tree import Statement, Tree
from ampscope.trace.records import RunInfo


@dataclass(frozen=True)
class ScalerStep:
    """A call `scaler.step(optimizer)` in the source; the two as the user writes them there."""

    tree: Tree
    call: cst.Call
    statement: Statement
    scaler: str
    optimizer: str
    name: str | None
    """The optimizer as the trace names it."""


@dataclass
class Project:
    """Trees are read when first asked for; a file that must not be edited raises Refused then."""

    info: RunInfo
    sites: tuple[Site, ...]
    facts: Facts
    _trees: dict[str, Tree] = field(default_factory=dict)

    @classmethod
    def of(cls, trace: TraceView) -> Project:
        return cls(trace.info, read_sites(trace), read_facts(trace))

    @classmethod
    def of_sources(cls, files: tuple[SourceFile, ...], sites: tuple[Site, ...], facts: Facts) -> Project:
        """Files in hand, without a run."""
        return cls(RunInfo(), sites, facts, {file.recorded: Tree(file) for file in files})

    def tree(self, file: str | None) -> Tree:
        known = self._trees.get(file or "")
        if known is None:
            known = self._trees[file or ""] = Tree(read_source(self.info, file))
        return known

    def trees(self) -> list[Tree]:
        """The files of the recorded calls that may be edited."""
        found = []
        for file in dict.fromkeys(site.file for site in self.sites):
            with contextlib.suppress(Refused):
                found.append(self.tree(file))
        return found

    def of_kind(self, *calls: str) -> list[Site]:
        return of_kind(self.sites, *calls)

    def call_at(self, site: Site, *names: str) -> cst.Call:
        """The call that a site is. Raises Refused when its line holds none: then a library makes it."""
        tree = self.tree(site.file)
        found = tree.calls(site.line, *names)
        if not found:
            raise Refused(f"{tree.file.path.name}:{site.line} does not itself call {' or '.join(names)}")
        return found[0]

    @cached_property
    def scaler_steps(self) -> list[ScalerStep]:
        """Every place where the user's code steps through a GradScaler, in order of the first call."""
        found: list[ScalerStep] = []
        for site in self.of_kind("scaler.step"):
            tree = self.tree(site.file)
            call = next((c for c in tree.calls(site.line, "step") if c.args), None)
            if call is None or not isinstance(call.func, cst.Attribute):
                raise Refused(f"{tree.file.path.name}:{site.line} does not itself call scaler.step")
            pair = (call.func.value, call.args[0].value)
            if not all(is_reference(part) for part in pair):
                raise Refused(f"the scaler or the optimizer at {tree.place(call)} has no name")
            if all(step.call is not call or step.name != site.target for step in found):
                scaler, optimizer = map(tree.code, pair)
                found.append(ScalerStep(tree, call, tree.statement(call), scaler, optimizer, site.target))
        return found

    def optimizers_of(self, sites: Iterable[Site]) -> frozenset[str]:
        """The optimizers that hold the parameters which these calls concern; else the ones stepped next."""
        owner = dict(self.facts.owners)
        held = {owner[name] for site in sites for name in site.params if name in owner}
        return frozenset(held or {site.next_step for site in sites if site.next_step})

    def steps_of(self, optimizers: frozenset[str]) -> list[ScalerStep]:
        """The scaler steps of these optimizers (as the trace names them); of all when none is named."""
        steps = [s for s in self.scaler_steps if not optimizers or s.name in optimizers]
        if not steps:
            raise Refused("the run recorded no scaler.step of that optimizer")
        return steps


def written_steps(tree: Tree, place: cst.CSTNode, scaler: str) -> list[ScalerStep]:
    """The calls `scaler.step(optimizer)` in the function of a node, in source order, whether they ran or not."""
    found = []
    for call in tree.nodes(cst.Call, tree.function(place)):
        if call.args and tree.code(call.func) == f"{scaler}.step" and is_reference(call.args[0].value):
            optimizer = tree.code(call.args[0].value)
            found.append(ScalerStep(tree, call, tree.statement(call), scaler, optimizer, None))
    return found


def visible(tree: Tree, expression: str, source: cst.CSTNode, place: cst.CSTNode) -> bool:
    """Whether `expression`, a reference as it stands at the node `source`, means the same at `place`."""
    root = root_name(cst.parse_expression(expression))
    here, there = tree.function(source), tree.function(place)
    if root is None:
        return False
    if here is there:
        return True
    if root == "self":
        return tree.class_of(source) is tree.class_of(place) is not None
    if root in tree.local_names(here):
        # A variable of a function is seen by the functions inside of it, unless they hide it.
        inside = here in list(tree.ancestors(place)) and not isinstance(here, cst.Module)
        return (inside or isinstance(here, cst.Module)) and (
            isinstance(there, cst.Module) or root not in tree.local_names(there)
        )
    return isinstance(there, cst.Module) or root not in tree.local_names(there)


@dataclass
class Case:
    """One finding to be turned into edits."""

    finding: Finding
    project: Project
    edited: dict[str, Edits] = field(default_factory=dict)

    @property
    def tree(self) -> Tree:
        """The file that the finding names."""
        return self.project.tree(self.finding.where.file)

    @property
    def line(self) -> int:
        if self.finding.where.line is None:
            raise Refused("the run recorded no source line for it")
        return self.finding.where.line

    def edits(self, tree: Tree) -> Edits:
        """The edits of a file on behalf of this finding."""
        return self.edited.setdefault(str(tree.file.path), Edits(tree))

    def sites(self, *calls: str) -> list[Site]:
        """The recorded calls of these kinds (of any kind if none is given) at the finding's own line."""
        where = self.finding.where
        return [
            s
            for s in self.project.sites
            if (s.file, s.line) == (where.file, where.line) and (not calls or s.call in calls) and not s.inner
        ]
