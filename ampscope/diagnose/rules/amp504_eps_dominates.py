"""Adam's eps is larger than the root of its second moments: the gradients are so small that eps decides the steps.

## How it shows
Adam learns far more slowly than its learning rate says, and the loss changes when eps is changed. Nothing overflows,
nothing is skipped.

## Why it happens
The step is lr * m / (sqrt(v) + eps). With gradients of 1e-9 and eps = 1e-8 the denominator is eps: the step is
proportional to the gradient, a tenth or a thousandth of lr, and no longer adapted. Gradients get that small when they
are divided by the loss scale twice, when a loss is not scaled although its gradients are unscaled, when the loss is
averaged twice, or when the network lets them vanish.

## Fix
```diff
- loss = criterion(model(x), y) / x.numel() / batches      # divided twice
+ loss = criterion(model(x), y)
```
First find out why the gradients are small; only then `Adam(params, eps=1e-15)` (in float32 that is no risk).

## What would refute it
With a smaller eps the parameters move no faster.

## Source
Kingma and Ba, Adam, ICLR 2015, algorithm 1;
[torch.optim.Adam](https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html)
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ampscope.diagnose.finding import Abstain, Change, Evidence, Where
from ampscope.diagnose.moments import Moment, decided_by_eps, moments_of
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import listed, percent, sci


@rule("AMP504", "eps-dominates", "warning", needs=("params",), explains=("AMP506",), depth=SYMPTOM)
def eps_dominates(rule: Rule, s: Signals) -> Found:
    """Over the sampled steps, the first ones included, the root of most float32 second moments is far below eps."""
    moments = [m for m in moments_of(s) if m.dtype == "float32" and m.eps and m.eps <= s.policy.eps_meant]
    if not moments:
        yield Abstain("no second moments in float32 with a small eps were sampled")
        return
    for owner in sorted({m.owner or "" for m in moments}):
        yield from _judge(rule, s, [m for m in moments if (m.owner or "") == owner])


def _judge(rule: Rule, s: Signals, moments: Sequence[Moment]) -> Found:
    per_step: dict[int, list[float]] = {}
    for m in moments:
        for x in m.samples:
            if x.asked:
                total = per_step.setdefault(x.step, [0.0, 0.0])
                total[0] += decided_by_eps(m, x, s.policy.eps_margin)
                total[1] += x.asked
    shares = {step: below / asked for step, (below, asked) in sorted(per_step.items())}
    early = list(shares.values())[: s.policy.early_samples]
    if not shares or min(statistics.median(shares.values()), statistics.median(early)) < s.policy.eps_share:
        return
    share = statistics.median(shares.values())
    eps, owner = moments[0].eps, moments[0].owner
    names = [m.name for m in moments if any(decided_by_eps(m, x, s.policy.eps_margin) for x in m.samples)]
    rows = "FROM tensors WHERE role = 'exp_avg_sq' AND dtype = 'float32'"
    yield rule.finding(
        Where(tensor=names[0], steps=(min(shares), max(shares))),
        f"For {percent(share)} of the elements that get a gradient the root of the second moment is below a tenth of "
        f"eps = {sci(eps)} ({listed(names)}): eps decides the steps of {owner or 'the optimizer'}, not the gradient.",
        "Find out why the gradients are this small (divided by the scale twice? averaged twice?); lower eps only if "
        "they are meant to be.",
        evidence=(
            Evidence("elements for which eps decides", share, "", "predicted"),
            s.measure("largest second moment", f"SELECT max(amax) {rows}"),
            s.measure("eps", f"SELECT min(eps) FROM params WHERE eps <= {s.policy.eps_meant}"),
        ),
        falsifier="With a smaller eps the parameters move no faster.",
        change=Change(set={"optimizer.eps": "1e-15"}),
    )
