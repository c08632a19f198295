"""Whether this float32 or bf16 run would fit into fp16: which loss scales suit it, or which tensor forbids it.

## How it shows
Nothing is wrong. The question is what changes on hardware without bfloat16, or for the three more bits of fp16.

## Why it happens
fp16 holds 6e-8 to 65504. Forward values must fit as they are: no loss scale helps them. Gradients may be multiplied by
one loss scale; there is a window of scales between the one at which the smallest gradients become zero and the one at
which the largest overflow. In some models the window is closed.

## Fix
```diff
- with torch.autocast(device, dtype=torch.bfloat16):
+ scaler = torch.amp.GradScaler(device, init_scale=2.0**14)
+ with torch.autocast(device, dtype=torch.float16):
```

## What would refute it
The fp16 run skips steps at that scale, or its loss differs.

## Source
[Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2](https://arxiv.org/abs/1710.03740)
"""

from __future__ import annotations

import math

from ampscope.diagnose.finding import Abstain, Change, Evidence, Where
from ampscope.diagnose.narrow import Spread, Window, spreads, unfit, window_of
from ampscope.diagnose.rule import OUTLOOK, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import pow2, sci
from ampscope.diagnose.work import span


@rule("AMP801", "fp16-ready", "info", needs=("tensors",), depth=OUTLOOK)
def fp16_ready(rule: Rule, s: Signals) -> Found:
    """The window of loss scales over all sampled gradients, and the headroom of the forward values."""
    if "float16" in s.training_dtypes or s.half_ops("float16"):
        return
    why = unfit(s)
    if why is not None:
        yield Abstain(why)
        return
    gradients = spreads(s, "activation_grad", "grad")
    forward = spreads(s, "activation", "weight")
    if any(t.nonfinite for t in (*gradients, *forward)):
        yield Abstain("the run holds NaN or inf, so its ranges say nothing")
        return
    known = [t for t in gradients if t.samples >= s.policy.ready_samples]
    window = window_of(known, s.policy.ready_flushed)
    if window is None or not forward:
        yield Abstain(
            f"fewer than {s.policy.ready_samples} samples of the gradients and activations were taken"
        )
        return
    largest = max(forward, key=lambda t: (t.amax, t.name))
    room = math.log2(65504.0 / largest.amax) if largest.amax > 0.0 else math.inf
    evidence = _evidence(window, largest, room)
    if room < s.policy.fp16_headroom:
        yield rule.finding(
            Where(module=largest.module, tensor=largest.name, steps=(largest.first, largest.last)),
            f"Not ready for fp16: {largest.name} reaches {sci(largest.amax)}, {_room(room)}, and no loss scale changes "
            "forward values.",
            f"Stay in this precision, or keep {largest.module or largest.name} in float32.",
            evidence=evidence,
            falsifier="In fp16 that tensor stays finite.",
        )
    elif not window.open:
        yield rule.finding(
            Where(tensor=window.closes_high, steps=span(s)),
            f"Not ready for fp16: {window.closes_low} needs a loss scale of {pow2(2.0**window.low)} or more, and "
            f"{window.closes_high} overflows above {pow2(2.0**window.high)}.",
            "Stay in this precision, or keep one of the two in float32.",
            evidence=evidence,
            falsifier="An fp16 run at one of these scales trains as well.",
        )
    else:
        scale = _start(window)
        yield rule.finding(
            Where(steps=span(s)),
            f"Ready for fp16: loss scales from {pow2(2.0 ** max(window.low, min(0, window.high)))} to "
            f"{pow2(2.0**window.high)} suit every sampled gradient, and forward values stay {room:.1f} binades below "
            "65504.",
            f"If fp16 is wanted, start with init_scale={pow2(scale)}.",
            evidence=evidence,
            falsifier="The fp16 run skips steps at that scale once it has settled, or its loss differs.",
            change=Change(diff=f"+ scaler = torch.amp.GradScaler(device, init_scale={scale:g})"),
        )


def _start(window: Window) -> float:
    """Three binades below the upper end, since gradients vary between batches, but within the window."""
    return 2.0 ** max(min(window.high - 3, 16), window.low, 0 if window.high >= 0 else window.high)


def _room(room: float) -> str:
    return "beyond 65504" if room < 0.0 else f"only {room:.1f} binades below 65504"


def _evidence(window: Window, largest: Spread, room: float) -> tuple[Evidence, ...]:
    return (
        Evidence("lowest loss scale that suits", 2.0**window.low, "", "predicted"),
        Evidence("highest loss scale that suits", 2.0**window.high, "", "predicted"),
        Evidence("largest forward value", largest.amax),
        Evidence("headroom of forward values", round(room, 2) if math.isfinite(room) else None, "binades"),
    )
