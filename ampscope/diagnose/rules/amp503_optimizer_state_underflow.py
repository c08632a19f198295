"""Adam's second moments are zero or subnormal in the dtype that holds them: the scaling of the steps is lost.

## How it shows
Adam behaves like plain gradient descent with a huge or a tiny learning rate: steps jump, or do not come. Raising eps
changes everything.

## Why it happens
exp_avg_sq holds (1 - beta2) times a squared gradient. For a gradient of 1e-3 that is 1e-9: float16 has nothing below
6e-8 and keeps few digits below 6.1e-5. Where v is zero, eps alone divides the step. State inherits the dtype of the
parameter, so a model in float16 has this by default.

## Fix
```diff
- model = model.half()
+ # parameters and state in float32; autocast casts for the forward
+ with torch.autocast(device, dtype=torch.float16):
```

## What would refute it
In float32 state the same gradients leave the second moments as small: then the gradients vanish, not the state.

## Source
Kingma and Ba, Adam, ICLR 2015, algorithm 1; [optimi #15](https://github.com/warner-benjamin/optimi/pull/15);
IEEE 754-2019, table 3.5
"""

from __future__ import annotations

from ampscope.diagnose.finding import Abstain, Change, Where
from ampscope.diagnose.moments import moments_of, vanished
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import listed, percent


@rule("AMP503", "optimizer-state-underflow", "warning", needs=("params",), depth=MECHANISM)
def optimizer_state_underflow(rule: Rule, s: Signals) -> Found:
    """Most second moments under a gradient are zero or subnormal in the later half of the samples."""
    moments = moments_of(s)
    if not moments:
        yield Abstain("no second moments were sampled")
        return
    for dtype in sorted({m.dtype for m in moments}):
        lost = {m.name: vanished(m) for m in moments if m.dtype == dtype}
        gone, asked = sum(x for x, _ in lost.values()), sum(n for _, n in lost.values())
        if not asked or gone / asked < s.policy.vanished_moment:
            continue
        worst = sorted(lost, key=lambda n: (-lost[n][0] / (lost[n][1] or 1.0), n))
        steps = [x.step for m in moments if m.dtype == dtype for x in m.samples]
        rows = f"FROM tensors WHERE role = 'exp_avg_sq' AND dtype = '{dtype}'"
        yield rule.finding(
            Where(tensor=worst[0], steps=(min(steps), max(steps))),
            f"{percent(gone / asked)} of the second moments whose gradient is not zero are zero or subnormal in "
            f"{dtype} ({listed(worst)}): Adam divides their steps by eps or by a number of a few bits.",
            "Keep parameters and optimizer state in float32 and let autocast cast for the forward.",
            evidence=(
                s.measure("zero second moments", f"SELECT sum(zeros) / sum(numel) {rows}"),
                s.measure("largest second moment", f"SELECT max(amax) {rows}"),
                s.measure("smallest second moment that is not zero", f"SELECT min(amin_nonzero) {rows}"),
            ),
            falsifier="In float32 state the same gradients leave second moments that are as small.",
            change=Change(diff="- model = model.half()\n+ with torch.autocast(device, dtype=torch.float16):"),
        )
