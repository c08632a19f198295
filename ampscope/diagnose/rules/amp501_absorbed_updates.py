"""Parameters stored in half precision do not move: their updates are smaller than half a unit in the last place.

## How it shows
The loss is flat although gradients and learning rate are normal. Most weights are bit for bit what they were
hundreds of steps ago.

## Why it happens
A bfloat16 number has 8 bits of precision, a float16 number 11. Adding an update below 2^-9 (bfloat16) or 2^-12
(float16) of a weight gives the weight back. Fine-tuning at 1e-5 is far below that. With float32 master weights
the updates add up until they count; autocast keeps the parameters in float32 for that reason.

## Fix
```diff
- model = model.to(torch.bfloat16)
+ # parameters stay float32, autocast casts them for each forward
- loss = criterion(model(x.bfloat16()), y)
+ with torch.autocast(device, dtype=torch.bfloat16):
+     loss = criterion(model(x), y)
```
Where memory forbids float32 weights: stochastic rounding, Kahan summation, or a larger learning rate.

## What would refute it
The optimizer keeps its own float32 copy, or carries the lost part in a compensation buffer.

## Source
[Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.1](https://arxiv.org/abs/1710.03740);
[torchao #1124](https://github.com/pytorch/ao/pull/1124)
"""

from __future__ import annotations

import pandas as pd

from ampscope.diagnose.finding import Abstain, Change, Where
from ampscope.diagnose.halfweights import compensated, half_updates
from ampscope.diagnose.moments import gradient_norms
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import listed, percent


@rule("AMP501", "absorbed-updates", "warning", needs=("updates",), explains=("AMP503", "AMP509"))
def absorbed_updates(rule: Rule, s: Signals) -> Found:
    """Over the sampled steps whose gradients still ask for something, most elements of half-precision parameters kept
    their bits under a nonzero gradient."""
    rows = half_updates(s)
    if rows.empty:
        return
    if rows["grad_nonzero"].isna().all() or rows["unchanged"].isna().all():
        yield Abstain("the updates of the half-precision parameters were not compared")
        return
    for dtype, group in rows.groupby("dtype", sort=True):
        if compensated(s, str(dtype)) or _survive(group):
            continue
        yield from _judge(rule, s, str(dtype), group)


def _survive(rows: pd.DataFrame) -> bool:
    """Whether small updates were seen to arrive, by the last that is known of each parameter."""
    known = rows[rows["survives"].notna()].groupby("name")["survives"].last().astype(bool)
    return bool(len(known)) and float(known.mean()) >= 0.5


def _judge(rule: Rule, s: Signals, dtype: str, rows: pd.DataFrame) -> Found:
    policy = s.policy
    rows, chosen = _asking(s, rows, f"FROM updates WHERE dtype = '{dtype}' AND lr > 0")
    asked, kept = rows["grad_nonzero"].sum(), rows["unchanged"].sum()
    steps = rows["step"].nunique()
    if not asked or steps < policy.absorbed_min_steps or kept / asked < policy.absorbed_warning:
        return
    share = float(kept / asked)
    per = rows.groupby("name", sort=True)[["unchanged", "grad_nonzero"]].sum()
    worst = (per["unchanged"] / per["grad_nonzero"].clip(lower=1)).sort_values(ascending=False, kind="stable")
    named = [str(n) for n in worst[worst >= policy.absorbed_warning].index]
    bits = {"bfloat16": "2^-9", "float16": "2^-12"}.get(dtype, "half a unit in the last place")
    yield rule.finding(
        Where(tensor=named[0], steps=(int(rows["step"].min()), int(rows["step"].max()))),
        f"{percent(share)} of the updates to {dtype} parameters were absorbed: the gradient was not zero and the "
        f"stored bits did not change ({listed(named)}). An update below {bits} of a weight rounds away.",
        "Keep the parameters in float32 and let autocast cast them; or use stochastic rounding or a larger "
        "learning rate.",
        severity="critical" if share >= policy.absorbed_critical else "warning",
        evidence=(
            s.measure("absorbed share", f"SELECT sum(unchanged) / sum(grad_nonzero) {chosen}"),
            s.measure("steps compared", f"SELECT count(DISTINCT step) {chosen}", "steps"),
            s.measure("learning rate", f"SELECT max(lr) {chosen}"),
        ),
        falsifier="The optimizer keeps float32 copies of these parameters, or a compensation buffer.",
        change=Change(
            diff=f"- model = model.to(torch.{dtype})\n+ with torch.autocast(device, dtype=torch.{dtype}):"
        ),
    )


def _asking(s: Signals, rows: pd.DataFrame, chosen: str) -> tuple[pd.DataFrame, str]:
    """The rows of steps whose gradient is not much smaller than the largest one, and the SQL that chooses them: the
    tiny updates of a run that has converged are nothing to keep."""
    norms = gradient_norms(s, set(rows["name"].astype(str)))
    top = max(norms.values(), default=0.0)
    idle = sorted(k for k, norm in norms.items() if norm < s.policy.asking_gradient * top)
    if not idle:
        return rows, chosen
    return rows[~rows["segment"].isin(idle)], f"{chosen} AND segment NOT IN ({', '.join(map(str, idle))})"
