"""The loss scale grows beyond what any fp16 gradient can need: nothing is there that could overflow.

## How it shows
The scale doubles again and again, past 2^24, at last to inf. Then every scaled loss is inf and every step is skipped.

## Why it happens
The scale grows until something overflows. When the gradients of the scaled loss are zero or vanishingly small (a
detached or saturated loss, a mask that leaves nothing, a growth_interval of a few steps), nothing ever does.

## Fix
```diff
+ if scaler.get_scale() > 2.0**20:
+     scaler.update(2.0**20)
```
And look at why the gradients vanish.

## What would refute it
Gradients at that scale are of ordinary size.

## Source
[torch.amp.GradScaler](https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler)
"""

from __future__ import annotations

import math

from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.symptoms import SKIPS
from ampscope.diagnose.text import pow2


@rule("AMP206", "scale-unbounded", "warning", needs=("scaler",), explains=("AMP305", SKIPS))
def scale_unbounded(rule: Rule, s: Signals) -> Found:
    """A scale that grew past 2^24."""
    for path in s.scale_paths:
        top = max(path.updates, key=lambda u: u.scale_after)
        limit = s.policy.unbounded_scale
        if not top.scale_after > limit or path.updates[0].scale > limit:
            continue
        first = next(u for u in path.updates if u.scale_after > limit)
        where = f"rank = {path.rank} AND proc = {path.proc} AND scaler = '{path.scaler}'"
        yield rule.finding(
            Where(steps=(first.step, top.step)),
            f"The loss scale grew from {pow2(path.updates[0].scale)} to {pow2(top.scale_after)} without meeting an "
            "overflow: the scaled gradients are zero or vanishingly small.",
            "Cap the scale (scaler.update(2.0**20)) and find out why the gradients vanish.",
            severity="critical" if math.isinf(top.scale_after) else "warning",
            evidence=(
                s.measure("highest scale", f"SELECT max(scale_after) FROM scaler WHERE {where}"),
                s.measure(
                    "growth_interval", f"SELECT min(growth_interval) FROM scaler WHERE {where}", "steps"
                ),
                s.measure(
                    "largest gradient seen",
                    "SELECT max(amax / scale) FROM tensors WHERE role = 'grad' AND scale > 0",
                ),
            ),
            falsifier="Gradients at that scale are of ordinary size.",
            change=Change(diff="+ scaler.update(2.0**20)"),
        )
