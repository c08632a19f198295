"""No loss scale suits the model: the largest gradients are at the top of fp16 while the smallest fall off the bottom.

## How it shows
The scaler does its work, with an overflow now and then, and still much of the gradients of some modules is zero.

## Why it happens
fp16 spans 40 binades. When the gradients of the model need more, any scale that is low enough for the largest ones
flushes the smallest ones. One tensor closes the window above, another one below.

## Fix
```diff
+ with torch.autocast(device, enabled=False):
+     y = loud_module(x.float())
- y = loud_module(x)
```
Take one of the two out of fp16 (float32 for that module), bring the sizes of the losses closer together, or use
bfloat16 where the device computes in it.

## What would refute it
A scale exists at which neither steps overflow nor gradients vanish.

## Source
[Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2](https://arxiv.org/abs/1710.03740)
"""

from __future__ import annotations

from ampscope.diagnose.advice import module_change, or_bf16
from ampscope.diagnose.families import UNDERFLOW
from ampscope.diagnose.finding import Abstain
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.starving import (
    flush_evidence,
    lost_phrase,
    room_phrase,
    severity_of,
    starving,
    where_lost,
)
from ampscope.diagnose.text import pow2


@rule("AMP205", "scale-window-closed", "warning", needs=("scaler",), explains=UNDERFLOW)
def scale_window_closed(rule: Rule, s: Signals) -> Found:
    """Much is flushed at the scale in force, and there is no room above to raise it."""
    if not s.underflow:
        yield Abstain("no fp16 gradient was sampled")
        return
    for path in s.scale_paths:
        sample = starving(s, path.final_scale)
        if sample is None or sample.headroom is None or sample.headroom >= s.policy.starved_headroom_binades:
            continue
        where = where_lost(s, sample.worst)
        loud = sample.loudest or "the loss"
        quiet = where.module or (f"line {where.line}" if where.line else "the model")
        yield rule.finding(
            where,
            f"No loss scale fits: at {pow2(path.final_scale)} {lost_phrase(sample)}, and {room_phrase(sample)}. "
            f"{loud} closes the window above, {quiet} below.",
            or_bf16(s, f"Run {loud} or {quiet} in float32") + ".",
            severity=severity_of(s, sample),
            evidence=flush_evidence(s, sample),
            falsifier="A scale exists at which neither steps overflow nor gradients vanish.",
            change=module_change(s, sample.loudest),
        )
