"""A backward adds scaled gradients after `unscale_` in the same window: the sum mixes two units.

## How it shows
No error. Training with accumulation is worse than without: all but the last micro-batches count for nothing, or
the clip limit is exceeded by far although clipping ran.

## Why it happens
After `unscale_` the gradients are true gradients. A further `scaler.scale(loss).backward()` adds gradients that are
`scale` times larger, and `scaler.step` does not divide again, because it knows that `unscale_` ran.

## Fix
```diff
  for micro in batch:
      scaler.scale(loss / n).backward()
-     if first: scaler.unscale_(optimizer)
+ scaler.unscale_(optimizer)
  torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
  scaler.step(optimizer)
```

## What would refute it
The later backward feeds parameters of another optimizer.

## Source
[torch.amp examples: gradient accumulation](https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation)
"""

from __future__ import annotations

from ampscope.diagnose.calls import Call
from ampscope.diagnose.families import FORWARD_OVERFLOW, RUINED
from ampscope.diagnose.finding import Change
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, pow2
from ampscope.diagnose.windows import Window


@rule(
    "AMP108",
    "unscale-mid-accumulation",
    "critical",
    needs=("calls",),
    explains=("AMP101", *RUINED),
    later=FORWARD_OVERFLOW,
)
def unscale_mid_accumulation(rule: Rule, s: Signals) -> Found:
    """unscale_, then a scaled backward that feeds the same optimizer, then its step."""
    wrong = [(w, u, b) for w in s.windows if (pair := _late_backward(s, w)) is not None for u, b in [pair]]
    for _, found in by_place(wrong, lambda item: item[1]):
        window, unscale, late = found[0]
        yield rule.finding(
            at([u for _, u, _ in found]),
            f"In {count(len(found), 'step')} a backward (line {late.line}) added gradients multiplied by "
            f"{pow2(window.scale)} after unscale_ had divided the earlier ones: {unscale.target} steps on their sum.",
            "Call `scaler.unscale_(optimizer)` after the last micro-batch.",
            evidence=(
                s.measure(
                    "unscale_ calls", "SELECT count(*) FROM calls WHERE call = 'scaler.unscale_'", "calls"
                ),
                s.measure("backward calls", "SELECT count(*) FROM calls WHERE call = 'backward'", "calls"),
                s.measure("loss scale", "SELECT median(value) FROM calls WHERE call = 'scaler.unscale_'"),
            ),
            falsifier="The later backward feeds no parameter of that optimizer.",
            change=Change(diff="  scaler.scale(loss).backward()\n+ scaler.unscale_(optimizer)"),
        )


def _late_backward(s: Signals, window: Window) -> tuple[Call, Call] | None:
    unscale = next((c for c in window.live if c.call == "scaler.unscale_" and c.error is None), None)
    if unscale is None or window.step is None or window.step.error is not None:
        return None
    if (window.scale or 1.0) < s.policy.scale_matters:
        return None
    late = [b for b in window.backwards if b.index > unscale.index and b.scaled in ("scaled", "mixed")]
    return (unscale, late[0]) if late else None
