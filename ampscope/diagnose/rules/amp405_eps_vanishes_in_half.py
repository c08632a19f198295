"""A safeguard (eps, clamp bound, offset) rounds to 0 or to 1 in half precision, and what it was to prevent happens.

## How it shows
Fine for a long time; then one empty row, one constant feature or one certain prediction gives a division by zero or
the log of zero, and inf or NaN in the loss or the gradients at every loss scale. In float32 the same code is safe.

## Why it happens
The smallest number that fp16 holds is 6e-8; 1e-8 and 1e-12 are zero in it, so `x + 1e-8` and `clamp_min(1e-12)` do
nothing. The number before 1 is 0.9995 in fp16 and 0.996 in bfloat16, so `clamp(max=1 - 1e-7)` does nothing either.
`F.normalize`, `cosine_similarity` and hand-written norms hide such constants as defaults.

## Fix
```diff
- x = x / (x.norm(dim=-1, keepdim=True) + 1e-8)
+ x = x.float()
+ x = x / (x.norm(dim=-1, keepdim=True) + 1e-8)
```
Run those lines in float32, or choose a constant that the dtype can hold: at least 1e-4 in fp16.

## What would refute it
The constant is kept by the dtype of the tensor it meets, or the value it guards is not zero (not one).

## Source
[pytorch #32137](https://github.com/pytorch/pytorch/issues/32137);
[CenterNet #234](https://github.com/xingyizhou/CenterNet/issues/234); IEEE 754-2019, section 4.3
"""

from __future__ import annotations

from ampscope.diagnose.advice import module_change
from ampscope.diagnose.failing import (
    BROKEN,
    groups,
    no_ops,
    op_evidence,
    ops_where,
    place_phrase,
    severity_of,
    spoken,
    where_of,
)
from ampscope.diagnose.finding import Change
from ampscope.diagnose.lineage import vanished_constant
from ampscope.diagnose.origins import Kind, Origin
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import sci


@rule("AMP405", "eps-vanishes-in-half", "critical", explains=(*BROKEN, "AMP304"), depth=ROOT)
def eps_vanishes_in_half(rule: Rule, s: Signals) -> Found:
    """An op that failed at a zero (or a one) which a constant before it was to keep away, and half rounded off."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
    for group in groups(s, lambda o: o.kind is Kind.SAFEGUARD):
        yield from _finding(rule, s, group)


def _finding(rule: Rule, s: Signals, group: list[Origin]) -> Found:
    first = group[0]
    guard = first.key
    if guard is None:
        return
    constant = vanished_constant(first.flow, guard)
    dtype = guard.to_half or "float16"
    becomes = "0" if constant is not None and abs(constant) < 0.5 else "1"
    result = "NaN" if first.op.out_nan else "inf"
    side = "backward of the " if first.op.backward else ""
    yield rule.finding(
        where_of(group, None if not first.op.backward else guard),
        f"The constant {sci(constant)} of the {guard.op.rstrip('_')}{place_phrase(guard)} is "
        f"{becomes} in {dtype}, so it "
        f"guards nothing: the {side}{spoken(first.op)} after it meets {first.op.in_zeros} zeros and returns {result}.",
        "Run these lines in float32, or choose a constant that "
        + (
            f"{dtype} can hold (1e-4 or more)."
            if becomes == "0"
            else f"{dtype} can hold (1 - 1e-3 or less in float16)."
        ),
        severity=severity_of(s, group),
        evidence=(
            s.measure(
                "the constant",
                f"SELECT scalars[{1 + _place(guard.scalars, constant)}] FROM ops WHERE {ops_where(guard)} AND "
                "len(scalars) > 0 ORDER BY segment, seq LIMIT 1",
            )
            if constant in guard.scalars
            else None,
            *op_evidence(s, first.op),
        ),
        falsifier=f"The constant is not rounded to {becomes} in the dtype that it meets.",
        change=Change(
            set=module_change(s, first.op.module).set,
            diff=f"- eps = {constant:g}\n+ eps = 1e-3" if constant else "",
        ),
    )


def _place(scalars: tuple[float, ...], constant: float | None) -> int:
    return scalars.index(constant) if constant in scalars else 0
