"""A matrix product or convolution in fp16 exceeds 65504 and returns inf, from inputs that are finite.

## How it shows
NaN from the first step (or from the step at which activations have grown), at every loss scale; the same script
runs in bfloat16 and float32. Typical for weights trained in bfloat16, for attention scores formed before the
division by sqrt(d), and for gated feed-forward outputs.

## Why it happens
fp16 ends at 65504. A dot product of thousands of terms needs inputs of only a few tens to get there. The loss
scale plays no part in the forward pass, so lowering it cannot help.

## Fix
```diff
- attn = (q @ k.transpose(-2, -1)) * scale
+ attn = (q * scale) @ k.transpose(-2, -1)
```
Scale before the product where the formula allows it; else run that module in float32, or use bfloat16 where the
device computes in it:
```diff
+ with torch.autocast(device, enabled=False):
+     y = self.wo(h.float())
```

## What would refute it
The same product in float32 is beyond 65504 in no element, or holds inf as well.

## Source
[transformers #9295](https://github.com/huggingface/transformers/pull/9295); IEEE 754-2019, table 3.5 (binary16)
"""

from __future__ import annotations

from ampscope.diagnose.advice import module_change, or_bf16
from ampscope.diagnose.families import RUINED, SKIPPING
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
from ampscope.diagnose.transitions import MATMUL


@rule(
    "AMP401",
    "half-matmul-overflow",
    "critical",
    explains=("AMP302", "AMP303", "AMP410", "AMP411", *SKIPPING, *RUINED),
    depth=MECHANISM,
)
def half_matmul_overflow(rule: Rule, s: Signals) -> Found:
    """A forward matmul or convolution that turned finite half inputs into inf and reached the loss."""
    missing = no_census(s)
    if missing is not None:
        yield missing
    for group in forward_overflows(s, MATMUL):
        first = group[0]
        yield rule.finding(
            where_of(group),
            f"The {first.out_dtypes[0]} {first.op}{place_phrase(group)} overflows: {made_phrase(group)}. No loss scale "
            "changes that.",
            or_bf16(
                s,
                "Scale its inputs down before the product where the formula allows it, or run it in float32",
            )
            + ".",
            evidence=overflow_evidence(s, group),
            falsifier="Recomputed in float32 from the same inputs, no element exceeds 65504.",
            change=module_change(s, first.module),
        )
