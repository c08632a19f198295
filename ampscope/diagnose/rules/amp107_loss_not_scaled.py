"""A loss is back-propagated without `scaler.scale`, and the scaler divides its gradients by the scale all the same.

## How it shows
What only that loss trains (an auxiliary head, a regulariser) stays flat, while the rest learns. When no loss is
scaled at all, nothing learns: every update is `scale` times too small. Where `scale` was never called, the scaler
says so: `Attempted step but _scale is None`.

## Why it happens
`scaler.step(optimizer)` divides all gradients of the optimizer by the scale. Those that were never multiplied by it
come out at 1/65536 of their size, and in fp16 they had no protection from underflow either.

## Fix
```diff
- scaler.scale(main_loss).backward()
- aux_loss.backward()
+ scaler.scale(main_loss + aux_loss).backward()
```
Or scale each one: `scaler.scale(aux_loss).backward()`.

## What would refute it
The loss was multiplied by the scale by hand, or it is added after `unscale_` on purpose.

## Source
[torch.amp examples: multiple losses](https://docs.pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers);
[stable-dreamfusion #158](https://github.com/ashawkey/stable-dreamfusion/issues/158)
"""

from __future__ import annotations

from ampscope.diagnose.calls import Call
from ampscope.diagnose.families import CRASHED, UNDERFLOW
from ampscope.diagnose.finding import Change
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, listed, pow2
from ampscope.diagnose.windows import Window


@rule("AMP107", "loss-not-scaled", "critical", needs=("calls",), explains=(*UNDERFLOW, *CRASHED))
def loss_not_scaled(rule: Rule, s: Signals) -> Found:
    """A backward root found unscaled or mixed whose gradients the scaler divides."""
    wrong = [(w, b) for w in s.windows for b in _unscaled_backwards(s, w)]
    for _, pairs in by_place(wrong, lambda pair: pair[1]):
        window, backward = pairs[0]
        alone = all(b.scaled == "unscaled" for b in window.backwards)
        kind = "Part of a loss" if backward.scaled == "mixed" else "A loss"
        fed = f", which feeds {listed(backward.params)}," if backward.params else ""
        what = "its updates are" if alone else "the updates from it are"
        yield rule.finding(
            at([b for _, b in pairs], tensor=backward.params[0] if backward.params else None),
            f"{kind} was back-propagated without scaler.scale() in {count(len(pairs), 'step')}{fed} and "
            f"scaler.step divides its gradients by {pow2(window.scale)} all the same: {what} that much too small.",
            "Scale every loss of that optimizer: `scaler.scale(loss).backward()`.",
            evidence=(
                s.measure(
                    "backward calls on unscaled or mixed roots",
                    "SELECT count(*) FROM calls WHERE call = 'backward' AND scaled IN ('unscaled', 'mixed')",
                    "calls",
                ),
                s.measure(
                    "backward calls on scaled roots",
                    "SELECT count(*) FROM calls WHERE call = 'backward' AND scaled = 'scaled'",
                    "calls",
                ),
                s.measure("loss scale", "SELECT median(value) FROM calls WHERE call = 'scaler.step'"),
            ),
            falsifier="The loss is multiplied by the loss scale by hand on the way.",
            change=Change(diff="- loss.backward()\n+ scaler.scale(loss).backward()"),
        )


def _unscaled_backwards(s: Signals, window: Window) -> list[Call]:
    """The live backwards on roots that do not carry the scale, before an explicit unscale_ of the window."""
    if (window.scale or 1.0) < s.policy.scale_matters or not (window.via_scaler or window.unscaled):
        return []
    if window.opt in s.hand_unscaled:
        return []
    end = window.unscaled.index if window.unscaled is not None else None
    return [
        b for b in window.backwards if b.scaled in ("unscaled", "mixed") and (end is None or b.index < end)
    ]
