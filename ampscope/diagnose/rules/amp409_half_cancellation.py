"""A difference of large half-precision numbers goes to zero, or below, and a sqrt, log or division follows.

## How it shows
NaN for near-duplicates only: distances between almost equal vectors, the variance of an almost constant feature,
1 - y² of a saturated y. Never in float32.

## Why it happens
A half number has 11 (bfloat16: 8) significant bits. |a|² + |b|² - 2ab of vectors of length 7 is rounded in units of
0.03; where the true distance is 0.001 the result is zero or negative, and sqrt of that is NaN.

## Fix
```diff
- d = (sq[i] + sq[j] - 2 * (x @ x.t())[i, j]).sqrt()
+ d = (x[i].float() - x[j].float()).square().sum(-1).clamp_min(1e-12).sqrt()
```
Use the direct formula (`(x - y)²`, `x.var()`, two-pass), or run the difference in float32.

## What would refute it
Computed in float32 from the same inputs, the difference is as small or negative.

## Source
[pytorch #136748](https://github.com/pytorch/pytorch/issues/136748); Higham, Accuracy and Stability of Numerical
Algorithms, section 1.7 (cancellation)
"""

from __future__ import annotations

from ampscope.diagnose.failing import (
    BROKEN,
    groups,
    no_ops,
    op_evidence,
    place_phrase,
    severity_of,
    spoken,
    where_of,
)
from ampscope.diagnose.finding import Change
from ampscope.diagnose.origins import Kind
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import sci


@rule("AMP409", "half-cancellation", "critical", explains=(*BROKEN, "AMP304", "AMP414"), depth=ROOT)
def half_cancellation(rule: Rule, s: Signals) -> Found:
    """An op that failed at a zero or a negative number which a subtraction in half left by rounding."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
    for group in groups(s, lambda o: o.kind is Kind.CANCELLED):
        first = group[0]
        difference = first.key
        if difference is None:
            continue
        lowest = min((o.op.in_amin for o in group if o.op.in_amin is not None), default=None)
        left = f"{sci(lowest)}" if lowest is not None and lowest < 0.0 else "exactly 0"
        result = "NaN" if first.op.out_nan else "inf"
        yield rule.finding(
            where_of(group),
            f"The {spoken(difference)}{place_phrase(difference)} subtracts numbers up to "
            f"{sci(difference.in_amax)} and "
            f"is left with {left} by rounding; the {first.op.op.rstrip('_')} after it returns {result} in "
            f"{first.op.out_nonfinite} elements.",
            "Compute the difference in float32, or use the direct formula; clamp before the root or the log.",
            severity=severity_of(s, group),
            evidence=(
                *op_evidence(s, first.op),
                s.measure(
                    "largest number subtracted",
                    f"SELECT max(in_amax) FROM ops WHERE op = 'aten::{difference.op}' AND line = {difference.line}",
                )
                if difference.line
                else None,
            ),
            falsifier="Computed in float32 from the same inputs, the difference is as small or negative.",
            change=_change(s, first.op.module),
        )


def _change(s: Signals, module: str | None) -> Change:
    """Float32 for the module, or else for all: bf16 has fewer bits still."""
    if module:
        return Change(set={"module.fp32": module})
    return Change(set={"autocast.enabled": "false"} if s.half_autocast else {})
