"""A value that overflowed in half is multiplied by zero: inf · 0 is NaN, where float32 gives a plain zero.

## How it shows
The loss is NaN although the term that is NaN is switched off: `0.0 * unused.sum()` to keep a head in the graph, a
ratio times a mask that is zero where the ratio is meaningless. Gradients may even stay finite.

## Why it happens
The term overflows 65504 in half, which would not matter if it were dropped. But 0 · inf is NaN (IEEE 754, invalid
operation), so the multiplication by zero keeps the trouble instead of removing it.

## Fix
```diff
- loss = task_loss + 0.0 * unused.sum()
+ loss = task_loss + 0.0 * unused.float().sum()
- ratio = (num / den) * mask
+ ratio = num[mask] / den[mask]
```
Sum in float32, or select (index, `torch.where` on the inputs) instead of multiplying by zero.

## What would refute it
The factor is nowhere zero where the other one is inf.

## Source
IEEE 754-2019, section 7.2 (invalid operation);
[pytorch DDP: find_unused_parameters](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)
"""

from __future__ import annotations

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
from ampscope.diagnose.lineage import functional
from ampscope.diagnose.opflow import COPIES, Op, SegmentOps
from ampscope.diagnose.origins import Kind, Origin
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import Signals

PRODUCERS = (Kind.MATMUL, Kind.REDUCTION, Kind.ELEMENTWISE, Kind.EXP, Kind.CAST)


@rule("AMP413", "zero-times-inf", "critical", explains=(*BROKEN, "AMP407", "AMP412"), depth=ROOT)
def zero_times_inf(rule: Rule, s: Signals) -> Found:
    """An overflow in half that reaches the loss only through a multiplication by zero."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
    for group in groups(s, lambda o: o.kind in PRODUCERS and o.precision and not o.op.backward):
        product = next((p for o in group if (p := zero_product(o)) is not None), None)
        if product is None:
            continue
        op = group[0].op
        zero = "0.0" if 0.0 in product.scalars else f"{product.in_zeros} zeros"
        yield rule.finding(
            where_of(group, product),
            f"The {spoken(op)}{place_phrase(op)} overflows to inf{reach_phrase(group)}, and the "
            f"{functional(product)}{place_phrase(product)} multiplies it by {zero}: NaN in {product.out_nan} elements "
            "where float32 has 0.",
            "Compute the term in float32, or select with indexing or torch.where on the inputs "
            "instead of multiplying by "
            "zero.",
            severity=severity_of(s, group),
            evidence=op_evidence(s, op),
            falsifier="The factor is nowhere zero where the other one is inf.",
            change=change_for(s, group[0].flow, op),
        )


def zero_product(origin: Origin) -> Op | None:
    """The multiplication by zero through which alone the infinities of an overflow go on; None when there is none."""
    flow, op = origin.flow, origin.op
    found: Op | None = None
    carried = set(op.outs)
    handed_on = False
    for later in flow.after(op):
        if later.backward:
            break
        if not carried & set(later.ins):
            continue
        if later.view:
            carried |= set(later.outs)
        elif _by_zero(flow, later):
            if handed_on and later.out_nonfinite > later.out_nan:
                return None  # infinities of elements that no zero hides go on as well
            found = found or later
        elif later.op == "ones_like":
            return None  # the seed of backward: the infinities reached the loss as they were
        elif not later.out_nan and (functional(later) in COPIES or later.out_nonfinite):
            carried |= set(later.outs)
            handed_on = True
        elif later.out_nonfinite and (flow.watched or flow.reached(later) is not None):
            return None
    return found


def _by_zero(flow: SegmentOps, op: Op) -> bool:
    """A product that makes NaN of infinities and zeros."""
    if functional(op) not in ("mul", "addcmul", "_foreach_mul") or not op.out_nan:
        return False
    fresh = all(w is None or not w.out_nan for w in flow.writers(op))
    return fresh and (0.0 in op.scalars or op.in_zeros > 0)
