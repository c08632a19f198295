"""exp, or a power of it, in half precision beyond its range: in fp16 every argument above 11.09 gives inf.

## How it shows
inf in a KL term, a hand-written softmax, a temperature, a rate or a likelihood, for a few elements at first; then a
NaN loss at every loss scale. Often right after the start, or once a parameter has drifted to 11.

## Why it happens
exp(11.09) is 65504, the largest fp16 number; in float32 exp reaches 88. CUDA autocast runs exp in float32, CPU
autocast does not, and neither does anything after `.half()`.

## Fix
```diff
- kl = -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum()
+ logvar = logvar.float().clamp(max=10.0)
+ kl = -0.5 * (1 + logvar - mu.float() ** 2 - logvar.exp()).sum()
```
Compute it in float32, clamp the argument, or subtract the largest value first (`softmax`, `logsumexp` do).

## What would refute it
The same exp in float32 stays below 65504, or is inf as well.

## Source
[apex #812](https://github.com/NVIDIA/apex/issues/812);
[torch.amp op reference](https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference)
"""

from __future__ import annotations

from ampscope.diagnose.advice import autocast_policy
from ampscope.diagnose.failing import (
    SPOILED,
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
from ampscope.diagnose.origins import Kind
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import sci


@rule("AMP404", "half-exp-overflow", "critical", explains=SPOILED, depth=MECHANISM)
def half_exp_overflow(rule: Rule, s: Signals) -> Found:
    """An exponential in half that turned finite inputs into inf and reached the loss."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
    for group in groups(s, lambda o: o.kind is Kind.EXP and o.precision):
        op = group[0].op
        name = op.op.rstrip("_")
        yield rule.finding(
            where_of(group),
            f"The {spoken(op)}{place_phrase(op)} overflows: its inputs are finite (at most {sci(op.in_amax)}), its "
            f"result holds inf{reach_phrase(group)}; fp16 holds exp up to 11.09 only. "
            f"{autocast_policy(s, name)}.",
            "Compute it in float32 and clamp its argument.",
            severity=severity_of(s, group),
            evidence=op_evidence(s, op),
            falsifier="In float32 the same exponential stays below 65504, or is inf as well.",
            change=change_for(s, group[0].flow, op, f"- x.{name}()\n+ x.float().clamp(max=10.0).{name}()"),
        )
