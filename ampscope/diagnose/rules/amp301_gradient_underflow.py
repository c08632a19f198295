"""Gradients of a module become zero in fp16, at a loss scale that cannot simply be raised.

## How it shows
One part of the model learns slower than in float32; its fp16 gradients are full of zeros and subnormal numbers
although their true values are not zero.

## Why it happens
fp16 holds magnitudes from 2^-24 to 65504, 40 binades. When the gradients of the model spread over more, a scale
that suits the largest ones pushes the smallest ones below 2^-25, where they round to zero. Zeros alone prove
nothing (inactive ReLU units, unused embeddings): what counts are values that are not zero in float32.

## Fix
```diff
+ with torch.autocast(device, enabled=False):
+     x = module(x.float())
- x = module(x)
```
Run the module that starves in float32, rebalance its loss, or use bfloat16 where the device computes in it.

## What would refute it
A float32 recompute of the same backward ops gives the same zeros.

## Source
[Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2](https://arxiv.org/abs/1710.03740);
IEEE 754-2019, table 3.5 (binary16)
"""

from __future__ import annotations

from ampscope.diagnose.advice import module_change, or_bf16
from ampscope.diagnose.families import UNDERFLOW
from ampscope.diagnose.finding import Abstain
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.starving import (
    flush_evidence,
    lost_phrase,
    room_phrase,
    severity_of,
    starving,
    where_lost,
)
from ampscope.diagnose.text import at_module


@rule(
    "AMP301",
    "gradient-underflow",
    "warning",
    explains=tuple(c for c in UNDERFLOW if c != "AMP301"),
    depth=MECHANISM,
)
def gradient_underflow(rule: Rule, s: Signals) -> Found:
    """Much of the fp16 gradients is flushed at the scale in force."""
    if not s.underflow:
        yield Abstain("no fp16 gradient was sampled")
        return
    sample = starving(s, s.scale_paths[-1].final_scale if s.scale_paths else None)
    if sample is None:
        return
    where = where_lost(s, sample.worst)
    place = f" of {at_module(where.module)}" if where.module else ""
    yield rule.finding(
        where,
        f"In fp16 {lost_phrase(sample)}; {room_phrase(sample)}.",
        or_bf16(s, f"Raise the loss scale if there is room, or run the backward{place} in float32") + ".",
        severity=severity_of(s, sample),
        evidence=flush_evidence(s, sample),
        falsifier="Recomputed in float32, the same gradients are zero as well.",
        change=module_change(s, where.module),
    )
