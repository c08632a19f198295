"""`unscale_` runs in every micro-batch of an accumulation window, or twice in one step: it may run once.

## How it shows
`RuntimeError: unscale_() has already been called on this optimizer since the last update().`, on the second
micro-batch.

## Why it happens
Gradients of several micro-batches are added up in `.grad`, all multiplied by the loss scale. `unscale_` divides
the whole sum. A second division would make the first micro-batches `scale` times too small, so GradScaler
refuses it until `update()` has closed the window.

## Fix
```diff
  scaler.scale(loss / accumulate).backward()
- scaler.unscale_(optimizer)
- torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
  if (i + 1) % accumulate == 0:
+     scaler.unscale_(optimizer)
+     torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
      scaler.step(optimizer)
      scaler.update()
      optimizer.zero_grad()
```

## What would refute it
The earlier `unscale_` belonged to a step of its own, whose `update()` was left out: that is AMP103.

## Source
[torch.amp examples: gradient accumulation](https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation);
[Swin-Transformer #311](https://github.com/microsoft/Swin-Transformer/issues/311)
"""

from __future__ import annotations

from ampscope.diagnose.accumulation import backwards_between, opened_iteration
from ampscope.diagnose.families import CRASHED
from ampscope.diagnose.finding import Change
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals


@rule("AMP102", "unscale-per-microbatch", "critical", needs=("calls",), explains=("AMP108", *CRASHED))
def unscale_per_microbatch(rule: Rule, s: Signals) -> Found:
    """unscale_ after unscale_ of the same optimizer, with no step, update or new iteration in between."""
    wrong = [b for b in s.breaches if b.kind == "unscale-after-unscale" and not opened_iteration(s, b)]
    for _, breaches in by_place(wrong, lambda b: b.call):
        breach = breaches[0]
        call = breach.call
        between = backwards_between(s, breach)
        window = f"after {between} more backward" if between else "with no backward in between"
        yield rule.finding(
            at([b.call for b in breaches]),
            f"unscale_ was called on {call.target} a second time before update(), {window}"
            + (f", and raised {call.error}." if call.error else ".")
            + (" It runs in every micro-batch of the accumulation window." if between else ""),
            "Unscale and clip once, in the micro-batch that steps.",
            evidence=(
                s.measure(
                    "unscale_ calls that raised",
                    "SELECT count(*) FROM calls WHERE call = 'scaler.unscale_' AND error IS NOT NULL",
                    "calls",
                ),
                s.measure("backward calls", "SELECT count(*) FROM calls WHERE call = 'backward'", "calls"),
                s.measure("update calls", "SELECT count(*) FROM calls WHERE call = 'scaler.update'", "calls"),
            ),
            falsifier="Each unscale_ belongs to a step of its own that lost its update() (AMP103).",
            change=Change(
                diff="+ if (i + 1) % accumulate == 0:\n+     scaler.unscale_(optimizer)\n      scaler.step(optimizer)"
            ),
        )
