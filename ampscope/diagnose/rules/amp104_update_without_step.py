"""`scaler.update()` runs in iterations that neither stepped nor unscaled: there is nothing to update from.

## How it shows
`AssertionError: No inf checks were recorded prior to update.`, at the first micro-batch that does not step.

## Why it happens
`update()` decides on the scale from the inf checks that `unscale_` and `step` recorded. With gradient accumulation
only every n-th micro-batch steps, and `update()` belongs to those.

## Fix
```diff
  scaler.scale(loss / accumulate).backward()
  if (i + 1) % accumulate == 0:
      scaler.step(optimizer)
+     scaler.update()
      optimizer.zero_grad()
- scaler.update()
```

## What would refute it
`unscale_` or `step` ran since the last update, and the optimizer had no gradients: that is AMP117.

## Source
[torch.amp examples: gradient accumulation](https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation);
[accelerate #357](https://github.com/huggingface/accelerate/issues/357)
"""

from __future__ import annotations

from ampscope.diagnose.families import CRASHED
from ampscope.diagnose.finding import Change
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals


@rule("AMP104", "update-without-step", "critical", needs=("calls",), explains=CRASHED)
def update_without_step(rule: Rule, s: Signals) -> Found:
    """update() that raised because no step or unscale_ came since the last one."""
    wrong = [b for b in s.breaches if b.kind == "update-without-check"]
    for _, breaches in by_place(wrong, lambda b: b.call):
        call = breaches[0].call
        yield rule.finding(
            at([b.call for b in breaches]),
            "scaler.update() was called with no scaler.step() or unscale_() since the last update(), and raised "
            f"{call.error}.",
            "Call `scaler.update()` only in the iterations that step.",
            evidence=(
                s.measure("backward calls", "SELECT count(*) FROM calls WHERE call = 'backward'", "calls"),
                s.measure("step calls", "SELECT count(*) FROM calls WHERE call = 'scaler.step'", "calls"),
                s.measure("update calls", "SELECT count(*) FROM calls WHERE call = 'scaler.update'", "calls"),
            ),
            falsifier="A step or unscale_ ran in between (then its optimizer had no gradients: AMP117).",
            change=Change(diff="      scaler.step(optimizer)\n+     scaler.update()\n- scaler.update()"),
        )
