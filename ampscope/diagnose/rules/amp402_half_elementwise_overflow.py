"""An addition or multiplication in fp16 exceeds 65504 and returns inf: a residual stream, a product, a scaling.

## How it shows
NaN once activations have grown, at every loss scale; deep pre-norm networks, un-normalised skip connections,
products of two features. The same script runs in bfloat16 and float32.

## Why it happens
fp16 ends at 65504. Every block of a residual network adds to one stream that nothing normalises, so it grows with
depth and with training; a product of two values of 300 is beyond the end at once. The loss scale plays no part in
the forward pass.

## Fix
```diff
- x = x + self.block(self.norm(x))
+ x = x + self.block(self.norm(x)).float()   # the stream itself stays float32
```
Or scale the branch down, or use bfloat16 where the device computes in it. A `.half()` in the model itself has to go
first: no setting of autocast reaches it.

## What would refute it
Recomputed in float32 from the same inputs, no element exceeds 65504.

## Source
[transformers #9295](https://github.com/huggingface/transformers/pull/9295); IEEE 754-2019, table 3.5 (binary16)
"""

from __future__ import annotations

from ampscope.diagnose.advice import bf16_change, or_bf16
from ampscope.diagnose.failing import (
    SPOILED,
    by_autocast,
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
from ampscope.diagnose.finding import Change
from ampscope.diagnose.opflow import Op, SegmentOps
from ampscope.diagnose.origins import Kind
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import sci
from ampscope.diagnose.written import removal, written_casts


@rule("AMP402", "half-elementwise-overflow", "critical", explains=SPOILED, depth=MECHANISM)
def half_elementwise_overflow(rule: Rule, s: Signals) -> Found:
    """A forward addition or multiplication that turned finite half inputs into inf and reached the loss."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
    for group in groups(s, lambda o: o.kind is Kind.ELEMENTWISE and o.precision and not o.op.backward):
        op, flow = group[0].op, group[0].flow
        advice, change = _way_out(s, flow, op)
        yield rule.finding(
            where_of(group),
            f"The {spoken(op)}{place_phrase(op)} overflows: its inputs are finite (at most {sci(op.in_amax)}), its "
            f"result holds inf{reach_phrase(group)}. No loss scale changes that.",
            advice,
            severity=severity_of(s, group),
            evidence=op_evidence(s, op),
            falsifier="Recomputed in float32 from the same inputs, no element exceeds 65504.",
            change=change,
        )


def _way_out(s: Signals, flow: SegmentOps, op: Op) -> tuple[str, Change]:
    """bf16 before float32 for the module: what exceeds 65504 is read by others, which would cast it to fp16 again.
    Where the script casts to float16 itself, neither reaches what is added."""
    casts = written_casts(s, flow, op)
    if casts:
        return removal(s, casts)
    bf16 = bf16_change(s) if by_autocast(flow, op) else {}
    advice = or_bf16(s, "Keep this sum or product in float32, or scale the branch that feeds it down") + "."
    return advice, Change(set=bf16) if bf16 else change_for(s, flow, op)
