"""Gradients overflow in fp16 by their size, at every loss scale down to the one that is left.

## How it shows
The loss is finite, steps are skipped again and again, and the loss scale falls far below 1 or never settles. Losses
summed over pixels or tokens, loss terms with large weights, a static loss scale chosen too high.

## Why it happens
A gradient of 1e6 does not fit into fp16 at any scale above 0.06, and at such scales the small gradients of the rest
of the model flush to zero. A few skipped first steps, and one after each growth of the scale, are the normal search
and are not meant here.

## Fix
```diff
- loss = F.mse_loss(pred, target, reduction="sum")
+ loss = F.mse_loss(pred, target)
```
Make the loss smaller (mean instead of sum, smaller weights), run the module that overflows in float32, lower a static
scale, or use bfloat16 where the device computes in it.

## What would refute it
Recomputed in float32, the same gradient divided by the loss scale is below 65504 by a wide margin.

## Source
[Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2](https://arxiv.org/abs/1710.03740)
"""

from __future__ import annotations

from ampscope.diagnose.advice import module_change, or_bf16
from ampscope.diagnose.failing import (
    FOLLOWS,
    groups,
    no_ops,
    op_evidence,
    place_phrase,
    severity_of,
    where_of,
)
from ampscope.diagnose.finding import Change
from ampscope.diagnose.origins import FP16_OVERFLOW, Kind, Origin
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import pow2, sci

LOW_SCALE = 16.0
"""A gradient that fits into fp16 at this loss scale or a higher one is what the scaler's search is for."""


@rule("AMP302", "gradient-overflow", "critical", explains=FOLLOWS, depth=MECHANISM)
def gradient_overflow(rule: Rule, s: Signals) -> Found:
    """A backward op whose fp16 result is too large, in steps that belong to no search for the loss scale."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
    for group in groups(s, _too_large):
        first = group[0]
        op = first.op
        true = max((x for o in group if (x := _true_size(o)) is not None), default=None)
        scales = sorted({o.trouble.scale for o in group if o.trouble.scale is not None})
        at = f" at loss scales of {pow2(scales[0])} to {pow2(scales[-1])}" if len(scales) > 1 else ""
        alone = f" Without the loss scale it is {sci(true)}." if true is not None and scales else ""
        yield rule.finding(
            where_of(group),
            f"In backward the float16 {op.op.rstrip('_')}{place_phrase(op)} overflows{at}: float32 gives "
            f"{sci(max((o.op.shadow_amax or o.op.in_amax or 0.0) for o in group))}, beyond 65504, "
            "while the forward is "
            f"finite.{alone}",
            or_bf16(
                s,
                "Make the loss smaller (mean instead of sum, smaller weights) or lower a fixed loss scale"
                if not scales
                else "Make this loss smaller (mean instead of sum, smaller weights), or run the module in float32",
            )
            + ".",
            severity=severity_of(s, group),
            evidence=op_evidence(s, op),
            falsifier="Recomputed in float32 and divided by the loss scale, this gradient is far below 65504.",
            change=Change(set=module_change(s, None).set),
        )


def _too_large(o: Origin) -> bool:
    if o.kind is not Kind.GRADIENT or not o.op.backward:
        return False
    size = _true_size(o)
    if size is None:
        return not o.trouble.searching
    return size >= FP16_OVERFLOW / (1.0 if o.trouble.searching else LOW_SCALE)


def _true_size(o: Origin) -> float | None:
    """The largest gradient of the op without the loss scale."""
    size = o.op.shadow_amax if o.op.shadow_amax is not None else o.op.in_amax
    if size is None or o.trouble.scale is None or o.trouble.scale <= 0.0:
        return None
    return size / o.trouble.scale
