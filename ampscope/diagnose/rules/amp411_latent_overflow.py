"""An fp16 activation is finite today, within two binades of 65504, and growing: it will overflow.

## How it shows
Nothing yet. The largest output of one module climbs from sample to sample and has come close to the largest
number that fp16 holds. The first thing to be seen would be a NaN loss and a falling scale.

## Why it happens
Residual streams, un-normalised attention scores and gated products grow with the weights during training. The
loss scale has no part in the forward pass and gives no warning.

## Fix
```diff
- y = self.mix(x)
+ y = self.mix(self.norm(x))
```
Normalise or scale what enters it, keep it and all that reads it in float32, or use bfloat16 where the device computes
in it. Float32 for the module alone moves the overflow to the next one, which takes its input in half.

## What would refute it
The largest value stops growing before the predicted step.

## Source
[transformers #9295](https://github.com/huggingface/transformers/pull/9295); IEEE 754-2019, table 3.5 (binary16)
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from ampscope.diagnose.advice import bf16_change, or_bf16
from ampscope.diagnose.finding import Abstain, Change, Finding, Where
from ampscope.diagnose.overflow import FP16_LARGEST
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals, quoted
from ampscope.diagnose.text import at_module, sci


@rule("AMP411", "latent-overflow", "warning", needs=("tensors",), depth=MECHANISM)
def latent_overflow(rule: Rule, s: Signals) -> Found:
    """The largest fp16 activation of a module is near the end of the range and rises over the run."""
    rows = s.tensors("activation")
    half = rows[rows["dtype"].eq("float16") & rows["amax"].notna() & rows["step"].notna()]
    if half.empty:
        yield Abstain("no fp16 activation was sampled")
        return
    found = [f for _, group in half.groupby("name", sort=True) if (f := _judge(rule, s, group)) is not None]
    if found:
        # One stream of growing activations passes through many modules: the one nearest to the end names it.
        yield min(found, key=lambda pair: pair[0])[1]


def _judge(rule: Rule, s: Signals, rows: pd.DataFrame) -> tuple[float, Finding] | None:
    policy = s.policy
    by_step = rows.groupby("step", sort=True)["amax"].max()
    name, module = str(rows["name"].iloc[0]), rows["module"].iloc[0]
    steps, sizes = by_step.index.to_numpy(float), by_step.to_numpy(float)
    if len(steps) < policy.latent_min_samples or sizes[-1] < FP16_LARGEST / 2**policy.latent_binades:
        return None
    if (rows["posinf"] + rows["neginf"] + rows["nan"]).fillna(0).sum() > 0:
        return None
    quarter = max(2, len(steps) // 4)
    logs = np.log2(np.maximum(sizes, 1.0))
    growth = float(np.median(logs[-quarter:]) - np.median(logs[:quarter]))
    recent = len(steps) // 2
    slope = float(np.polyfit(steps[recent:], logs[recent:], 1)[0]) if len(steps) - recent > 1 else 0.0
    if growth < policy.latent_growth_log2 or slope <= 0.0:
        return None
    left = math.log2(FP16_LARGEST / sizes[-1])
    due = steps[-1] + left / slope
    if due > steps[-1] + policy.latent_horizon * max(1.0, steps[-1] - steps[0]):
        return None
    chosen = f"FROM tensors WHERE role = 'activation' AND dtype = 'float16' AND name = {quoted(name)}"
    finding = rule.finding(
        Where(module=str(module), tensor=name, steps=(int(steps[0]), int(steps[-1]))),
        f"The fp16 output of {at_module(module)} grew from {sci(sizes[0])} to {sci(sizes[-1])}, "
        f"{left:.1f} binades below 65504; "
        f"at its present pace it overflows near step {int(due)}.",
        or_bf16(s, f"Before that, normalise or scale down what enters {at_module(module)}") + ".",
        evidence=(
            s.measure("largest output at the last sample", f"SELECT arg_max(amax, step) {chosen}"),
            s.measure("largest output at the first sample", f"SELECT arg_min(amax, step) {chosen}"),
        ),
        falsifier=f"The largest output stops growing before step {int(due)}.",
        change=Change(set=bf16_change(s)),
    )
    return left / slope, finding
