"""A sum, mean, norm, power or loss reduction in half precision exceeds 65504, although every element is small.

## How it shows
The loss is inf or NaN for large inputs (big images, long sequences, large vocabularies) and fine for small ones.
The model itself is healthy.

## Why it happens
The result of adding n numbers of size a is n·a. With 262 144 pixels of 0.5 that is 131 072: no fp16 number.
CUDA autocast runs reductions in float32; CPU autocast does not, and neither does anything after `.half()`.

## Fix
```diff
- inter = (prob * mask).sum()
+ inter = (prob.float() * mask).sum()
```
Convert before the reduction, not after it: `x.sum().float()` converts inf.

## What would refute it
The same reduction in float32 stays below 65504, or is not finite either.

## Source
[pytorch #61523](https://github.com/pytorch/pytorch/issues/61523);
[torch.amp op reference](https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference)
"""

from __future__ import annotations

from ampscope.diagnose.advice import autocast_policy, module_change
from ampscope.diagnose.families import RUINED, SKIPPING
from ampscope.diagnose.finding import Change
from ampscope.diagnose.overflow import (
    forward_overflows,
    made_phrase,
    no_census,
    overflow_evidence,
    place_phrase,
    where_of,
)
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.transitions import REDUCTION


@rule(
    "AMP403",
    "half-reduction-overflow",
    "critical",
    explains=("AMP302", "AMP303", "AMP410", *SKIPPING, *RUINED),
    depth=MECHANISM,
)
def half_reduction_overflow(rule: Rule, s: Signals) -> Found:
    """A forward reduction that turned finite half inputs into inf or NaN and reached the loss."""
    missing = no_census(s)
    if missing is not None:
        yield missing
    for group in forward_overflows(s, REDUCTION):
        first = group[0]
        size = f" over {first.in_shapes[0]}" if first.in_shapes and first.in_shapes[0] else ""
        yield rule.finding(
            where_of(group),
            f"The {first.out_dtypes[0]} {first.op}{size}{place_phrase(group)} overflows: {made_phrase(group)}. "
            f"{autocast_policy(s, first.op)}.",
            "Reduce in float32: convert the operands with `.float()` before the reduction.",
            evidence=overflow_evidence(s, group),
            falsifier="Recomputed in float32 from the same inputs, the result stays below 65504.",
            change=_change(s, group[0].module, first.op),
        )


def _change(s: Signals, module: str | None, op: str) -> Change:
    diff = f"- x.{op}(...)\n+ x.float().{op}(...)"
    return Change(set=module_change(s, module).set, diff=diff)
