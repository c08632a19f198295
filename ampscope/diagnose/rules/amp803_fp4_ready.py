"""Which layers would surely fit into FP4, judged by range alone, and which would have to be tried.

## How it shows
Nothing is wrong. The question is which weights and activations could be stored in MXFP4 or NVFP4.

## Why it happens
FP4 (e2m1) has the values 0, 0.5, 1, 1.5, 2, 3, 4 and 6: whatever lies more than 4.6 binades below the largest value
that shares its scale becomes zero. MXFP4 gives every 32 elements their own scale, NVFP4 every 16, and a block has at
most the range of the tensor. So the share that becomes zero with one scale for the whole tensor is an upper bound: a
small one settles the matter, a large one does not, because blocks need the values and not their histogram.

## Fix
```diff
+ from ampscope.numerics import evaluate_both
+ print(evaluate_both(layer.weight, "nvfp4"))        # for the layers that are left open
```

## What would refute it
`ampscope.numerics.evaluate(tensor, "nvfp4")` on a tensor that is said to fit flushes more than the bound.

## Source
[OCP Microscaling Formats 1.0](https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf);
[NVFP4, arXiv:2509.25149](https://arxiv.org/abs/2509.25149)
"""

from __future__ import annotations

from ampscope.diagnose.finding import Abstain, Evidence, Where
from ampscope.diagnose.narrow import E2M1, of_matrices, unfit, worst_first
from ampscope.diagnose.rule import OUTLOOK, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import listed, percent
from ampscope.diagnose.work import span


@rule("AMP803", "fp4-ready", "info", needs=("tensors",), depth=OUTLOOK)
def fp4_ready(rule: Rule, s: Signals) -> Found:
    """Layers whose weights and outputs lose little in e2m1 even under one scale for the whole tensor."""
    why = unfit(s)
    if why is not None:
        yield Abstain(why)
        return
    tensors = of_matrices(s, "weight", "activation")
    if not tensors:
        yield Abstain("the layers with a weight matrix were not sampled often enough")
        return
    if any(t.nonfinite for t in tensors):
        yield Abstain("the run holds NaN or inf, so its ranges say nothing")
        return
    worst: dict[str, float] = {}
    for share, t in worst_first(tensors, E2M1):
        worst[t.module or t.name] = max(share, worst.get(t.module or t.name, 0.0))
    fit = sorted(name for name, share in worst.items() if share <= s.policy.fp4_flushed)
    if not fit:
        yield Abstain(
            "under one scale per tensor every layer loses more than "
            f"{percent(s.policy.fp4_flushed)} in e2m1, and scaling by blocks needs the values: "
            "see ampscope.numerics.evaluate"
        )
        return
    bound = max(worst[name] for name in fit)
    yield rule.finding(
        Where(module=fit[0], steps=span(s)),
        f"{len(fit)} of {len(worst)} layers fit the range of FP4: with a scale for each tensor at most "
        f"{percent(bound)} of their weights and outputs become zero in e2m1, with scales for blocks no more "
        f"({listed(fit)}). {_others(len(worst) - len(fit))}",
        _advice(len(worst) - len(fit)),
        evidence=(
            Evidence("layers that fit", len(fit), "layers", "predicted"),
            Evidence("share that becomes zero there, at most", bound, "", "predicted"),
        ),
        falsifier="Quantising the real tensors flushes more than the bound.",
    )


def _others(n: int) -> str:
    if not n:
        return "The error of what stays is not predicted: it needs the values."
    return f"The other {n} are open: scales for blocks need the values, which a histogram does not hold."


def _advice(n: int) -> str:
    tool = "ampscope.numerics.evaluate_both on their tensors"
    if not n:
        return f"Measure the rounding error of the layers with {tool} before trying FP4."
    return f"Evaluate the open layers with {tool} before leaving them out."
