"""What FP8 would do to this run's tensors under per-tensor scaling, and which layers to leave out.

## How it shows
Nothing is wrong. The question is whether weights and activations fit into e4m3 and gradients into e5m2.

## Why it happens
FP8 keeps 2 to 4 digits of range: with its largest value scaled to the largest of the format, e4m3 keeps what lies
within 18 binades of it and e5m2 within 32. A tensor with outliers pushes its small values below that. What is reported
is computed from exponent histograms: the share that becomes zero and the share that loses digits. The error of what
stays depends on the values and is not known from a histogram, and neither is what scaling by blocks (1x128, MX) does.
What the present precision has flushed already is not seen, so that after an fp16 run the shares are lower bounds.

## Fix
```diff
+ recipe = DelayedScaling(fp8_format=Format.HYBRID)
+ with te.fp8_autocast(fp8_recipe=recipe):          # leave out the layers that are named
      y = layer(x)
```

## What would refute it
`ampscope.numerics.evaluate(tensor, "tensor_e4m3")` on the real tensors gives other shares.

## Source
[Micikevicius et al., FP8 Formats for Deep Learning](https://arxiv.org/abs/2209.05433)
"""

from __future__ import annotations

from collections.abc import Sequence

from ampscope.diagnose.finding import Abstain, Evidence, Where
from ampscope.diagnose.narrow import E4M3, E5M2, Narrow, Spread, of_matrices, unfit, worst_first
from ampscope.diagnose.rule import OUTLOOK, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, listed, percent
from ampscope.diagnose.work import span


@rule("AMP802", "fp8-ready", "info", needs=("tensors",), depth=OUTLOOK)
def fp8_ready(rule: Rule, s: Signals) -> Found:
    """Flushed shares of weights, activations and gradients of layers with a weight matrix, in e4m3 and e5m2."""
    why = unfit(s)
    if why is not None:
        yield Abstain(why)
        return
    values = of_matrices(s, "weight", "activation")
    gradients = of_matrices(s, "activation_grad")
    if not values or not gradients:
        yield Abstain("the layers with a weight matrix were not sampled often enough")
        return
    if any(t.nonfinite for t in (*values, *gradients)):
        yield Abstain("the run holds NaN or inf, so its ranges say nothing")
        return
    out = [*_lost(values, E4M3, s), *_lost(gradients, E5M2, s)]
    worst = {E4M3.name: worst_first(values, E4M3)[0], E5M2.name: worst_first(gradients, E5M2)[0]}
    names = sorted({t.module or t.name for t in out})
    evidence = [
        Evidence(f"largest share that becomes zero in {f} ({t.name})", share, "", "predicted")
        for f, (share, t) in worst.items()
    ]
    if names:
        claim = (
            f"Under per-tensor FP8 scaling, more than {percent(s.policy.ready_flushed)} of some tensor becomes zero in "
            f"{count(len(names), 'layer')}: {listed(names)}."
        )
        advice = "Leave these layers in their present precision, or scale by blocks there."
    else:
        claim = (
            f"Under per-tensor FP8 scaling, at most {percent(worst[E4M3.name][0])} of a weight or activation becomes "
            f"zero in e4m3 and {percent(worst[E5M2.name][0])} of a gradient in e5m2."
        )
        advice = "The range fits FP8; try it on the hardware, and compare the loss."
    yield rule.finding(
        Where(module=names[0] if names else None, steps=span(s)),
        f"{claim} Rounding errors and block scaling need the values and are not predicted.",
        advice,
        evidence=evidence,
        falsifier="Quantising the real tensors gives other shares.",
    )


def _lost(tensors: Sequence[Spread], fmt: Narrow, s: Signals) -> list[Spread]:
    return [t for share, t in worst_first(tensors, fmt) if share > s.policy.ready_flushed]
