"""The forward is finite, its gradient is not: sqrt, norm, pow, log or a division at a zero or saturated input.

## How it shows
The loss is finite, the gradients hold NaN or inf at every loss scale, whatever the precision. Without a scaler the
weights are NaN after that step.

## Why it happens
The slope of sqrt at 0 is infinite, and the chain rule multiplies it by the zero that came in: 0 · inf = NaN. The
same holds for norms, fractional powers, atanh at 1 and a `torch.where` whose other branch is log(0): where hides the
value, not the gradient.

## Fix
```diff
- d = ((a - b) ** 2).sum(-1).sqrt()
+ d = (((a - b) ** 2).sum(-1) + 1e-8).sqrt()     # in float32: 1e-8 is zero in fp16
- y = torch.where(x > 0, torch.log(x), 0.0)
+ y = torch.where(x > 0, torch.log(torch.where(x > 0, x, 1.0)), 0.0)
```

## What would refute it
The input of that op is nowhere zero (or saturated) in the failing batch.

## Source
[pytorch #10729](https://github.com/pytorch/pytorch/issues/10729);
[torch.where and NaN gradients](https://docs.pytorch.org/docs/stable/autograd.html)
"""

from __future__ import annotations

from ampscope.diagnose.failing import (
    FOLLOWS,
    change_for,
    groups,
    no_ops,
    op_evidence,
    place_phrase,
    severity_of,
    where_of,
)
from ampscope.diagnose.finding import Change
from ampscope.diagnose.origins import Kind
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals


@rule("AMP303", "singular-backward", "critical", explains=("AMP302", *FOLLOWS), depth=MECHANISM)
def singular_backward(rule: Rule, s: Signals) -> Found:
    """A backward op with a zero among finite inputs that returned inf or NaN which reached a gradient."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
    for group in groups(s, lambda o: o.kind is Kind.SINGULAR and o.op.backward):
        op = group[0].op
        dtype = next(iter(op.out_dtypes), "float32")
        half = (
            " It would be so in float32 as well: this is no matter of precision."
            if not group[0].precision
            else ""
        )
        yield rule.finding(
            where_of(group),
            f"In backward the {dtype} {op.op.rstrip('_')} of this line{place_phrase(op)} meets "
            f"{op.in_zeros} zeros and "
            f"returns {'NaN' if op.out_nan else 'inf'} in {op.out_nonfinite} elements, at every loss "
            "scale; the forward "
            f"is finite.{half}",
            "Keep zeros away inside the root, the power or the log (an eps that the dtype holds), in float32.",
            severity=severity_of(s, group),
            evidence=op_evidence(s, op),
            falsifier="The input of that op is nowhere zero in the failing batch.",
            change=change_for(s, group[0].flow, op) if group[0].precision else Change(),
        )
