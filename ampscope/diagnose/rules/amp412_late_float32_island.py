"""A float32 region starts after its input has already overflowed in half: `.float()` converts inf to inf.

## How it shows
NaN although the fragile part (a norm, a log, a distance) was moved into `autocast(enabled=False)` with `.float()`.
Moving more of what follows into the region does not help.

## Why it happens
The op before the region runs in half and exceeds 65504. What enters the region is inf, and float32 of inf is inf.

## Fix
```diff
- h = self.lift(x)                       # fp16: inf
  with torch.autocast(device, enabled=False):
-     h = self.norm(h.float())
+     h = self.norm(self.lift(x.float()))
```
Move the producer into the region, scale its input down, or use bfloat16 where the device computes in it.

## What would refute it
What enters the float32 region is finite.

## Source
[pytorch #115500](https://github.com/pytorch/pytorch/issues/115500)
"""

from __future__ import annotations

from ampscope.diagnose.advice import or_bf16
from ampscope.diagnose.failing import (
    BROKEN,
    change_for,
    groups,
    no_ops,
    op_evidence,
    place_phrase,
    reach_phrase,
    severity_of,
    spoken,
    where_of,
)
from ampscope.diagnose.opflow import Op, SegmentOps
from ampscope.diagnose.origins import Kind, Origin
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import Signals

PRODUCERS = (Kind.MATMUL, Kind.REDUCTION, Kind.ELEMENTWISE, Kind.EXP)


@rule("AMP412", "late-float32-island", "critical", explains=BROKEN, depth=ROOT)
def late_float32_island(rule: Rule, s: Signals) -> Found:
    """An overflow in half whose result the user casts to float32 for a part of the model."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
    for group in groups(s, lambda o: o.kind in PRODUCERS and o.precision and not o.op.backward):
        entry = next((e for o in group if (e := island_entry(o)) is not None), None)
        if entry is None:
            continue
        op = group[0].op
        line = f" (line {entry.line})" if entry.line and entry.line != op.line else ""
        yield rule.finding(
            where_of(group),
            f"The {spoken(op)}{place_phrase(op)} has overflowed to inf before the float32 region{line} that reads it"
            f"{reach_phrase(group)}: float32 of inf is inf.",
            or_bf16(s, "Move the op that produces the value into the float32 region, or scale its input down")
            + ".",
            severity=severity_of(s, group),
            evidence=op_evidence(s, op),
            falsifier="What enters the float32 region is finite.",
            change=change_for(s, group[0].flow, op),
        )


def island_entry(origin: Origin) -> Op | None:
    """The user's cast to float32 that reads the overflowed value inside the model; None when there is none.

    A loss that is computed in float32 is no island: nothing comes back from it into the model.
    """
    flow, op = origin.flow, origin.op
    for later in flow.spread(op):
        if later.backward:
            return None
        up = later.op in ("_to_copy", "to") and later.from_half and "float32" in later.out_dtypes
        if up and later.cast == "user" and (later.module is not None or _comes_back(flow, later)):
            return later
    return None


def _comes_back(flow: SegmentOps, cast: Op) -> bool:
    """Something computed in float32 from the cast enters half precision again in the forward."""
    reached = set(cast.outs)
    for later in flow.after(cast):
        if later.backward:
            return False
        if reached & set(later.ins):
            if later.to_half and "float32" in later.in_dtypes:
                return True
            reached |= set(later.outs)
    return False
