"""Follows non-finite values from the op that made them to a loss, a gradient or a weight. Works on storage identities
and ranges; knows which infinities are meant (masks) and which memory was never written.
"""

from __future__ import annotations

import math
from collections.abc import KeysView
from dataclasses import dataclass, field
from enum import Enum

from ampscope.hooks.oprow import PendingOp
from ampscope.hooks.tensorfacts import TensorFacts
from ampscope.hooks.valuerange import ValueRange


class Harmless(Enum):
    """Why a storage may hold values that are not finite without anything being wrong."""

    MASK = "a mask: -inf, or an infinity that the program wrote down"
    UNWRITTEN = "memory from empty() that was not filled completely, or values that were not read"


class Verdict(Enum):
    """What one op did."""

    NOTHING = 0
    TRANSITION = 1
    """Finite in (masks aside), not finite out."""
    ENTRY = 2
    """The first op to read a non-finite tensor that came from outside: a batch, a weight, a buffer."""


@dataclass
class Flow:
    """`follow` every op in order. Sources are numbered in the order of their verdicts, from 0; `reached` says
    for each how far its values went: loss, gradient or weight."""

    reached: dict[int, str] = field(default_factory=dict)
    _marks: dict[int, Harmless | frozenset[int]] = field(default_factory=dict)
    _from_backward: set[int] = field(default_factory=set)
    _sources: int = 0

    @property
    def sources(self) -> int:
        """How many sources there were."""
        return self._sources

    def follow(self, op: PendingOp, parameters: KeysView[int]) -> Verdict:
        """`parameters`: identities of storages of parameters."""
        verdict = Verdict.NOTHING
        bad = [f for f in op.inputs if f.range is not None and f.range.nonfinite]
        strangers = [f for f in bad if f.identity not in self._marks]
        for f in strangers:
            assert f.range is not None
            if f.range.only_neginf:
                self._marks[f.identity] = Harmless.MASK
        strangers = [f for f in strangers if f.identity not in self._marks]
        if strangers:
            verdict = Verdict.ENTRY
            source = self._new_source(op)
            for f in strangers:
                self._marks[f.identity] = frozenset((source,))
        sources = self._sources_of(bad)
        self._note_arrival(op, sources)
        mark = self._mark_of_result(op, bad, sources)
        if mark is None:
            self._clear_overwritten(op)
        elif mark == frozenset():
            verdict = Verdict.TRANSITION
            mark = frozenset((self._new_source(op),))
        if mark is not None:
            self._spread(op, mark, parameters)
        return verdict

    def arrived(self, identity: int, where: str) -> None:
        """A storage turned out to be a loss or a gradient."""
        mark = self._marks.get(identity)
        if isinstance(mark, frozenset):
            for source in mark:
                self.reached.setdefault(source, where)

    def keep(self, identities: set[int]) -> None:
        """Forget all other storages."""
        self._marks = {k: v for k, v in self._marks.items() if k in identities}

    def _new_source(self, op: PendingOp) -> int:
        source = self._sources
        self._sources += 1
        if op.node is not None:
            self._from_backward.add(source)
        return source

    def _sources_of(self, facts: list[TensorFacts]) -> frozenset[int]:
        found: frozenset[int] = frozenset()
        for f in facts:
            mark = self._marks.get(f.identity)
            if isinstance(mark, frozenset):
                found |= mark
        return found

    def _note_arrival(self, op: PendingOp, sources: frozenset[int]) -> None:
        name = op.info.name
        if op.node is not None and op.node.name().endswith("AccumulateGrad"):
            for f in op.inputs:
                self.arrived(f.identity, "gradient")
        elif name == "aten::_amp_foreach_non_finite_check_and_unscale_":
            for source in sources:
                self.reached.setdefault(source, "gradient")
        elif op.node is None:
            # autograd.grad() hands gradients over without an op: the next reader outside backward tells.
            for source in sources & self._from_backward:
                self.reached.setdefault(source, "gradient")

    def _mark_of_result(
        self, op: PendingOp, bad: list[TensorFacts], sources: frozenset[int]
    ) -> Harmless | frozenset[int] | None:
        """Mark for the results; the empty set for a new source, None when the results are finite."""
        results = [f.range for f in _results(op) if f.range is not None and f.range.nonfinite]
        if op.info.uninitialised:
            return Harmless.UNWRITTEN
        if not results:
            return None
        if sources:
            return sources
        if any(self._marks.get(f.identity) is Harmless.UNWRITTEN for f in bad) or _unread(op.inputs):
            return Harmless.UNWRITTEN
        made_nan = any(r.nan for r in results)
        written_down = any(not math.isfinite(s) for s in op.row["scalars"] or ())
        if written_down and (op.info.literal or not made_nan):
            return Harmless.MASK
        if bad and not made_nan:
            return Harmless.MASK
        return frozenset()

    def _spread(self, op: PendingOp, mark: Harmless | frozenset[int], parameters: KeysView[int]) -> None:
        for f in _results(op):
            if op.info.uninitialised or (f.range is not None and f.range.nonfinite):
                old = self._marks.get(f.identity)
                if isinstance(mark, frozenset) and isinstance(old, frozenset):
                    self._marks[f.identity] = old | mark
                else:
                    self._marks[f.identity] = mark
                if f.identity in parameters and op.info.writes and isinstance(mark, frozenset):
                    for source in mark:
                        self.reached.setdefault(source, "weight")

    def _clear_overwritten(self, op: PendingOp) -> None:
        if not op.info.mutates:
            return
        for f in op.outputs:
            if f.identity in self._marks and _finite(f.range) and f.whole_storage:
                del self._marks[f.identity]


def _results(op: PendingOp) -> list[TensorFacts]:
    return op.outputs + op.side if op.side else op.outputs


def _finite(found: ValueRange | None) -> bool:
    return found is not None and found.nonfinite == 0


def _unread(inputs: list[TensorFacts]) -> bool:
    """Some floating-point input was not read: too large, or no values to be had."""
    return any(f.range is None and "float" in f.dtype and f.nbytes for f in inputs)
