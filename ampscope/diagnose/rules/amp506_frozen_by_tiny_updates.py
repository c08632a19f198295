"""Float32 parameters hardly move: their updates are orders of magnitude smaller than the learning rate says.

## How it shows
The loss is flat from the first step on. Gradients exist, nothing is skipped, nothing overflows, the learning rate is
one that works elsewhere.

## Why it happens
Adam's first steps are about lr for each element, whatever the size of the gradient, unless the gradient is below eps.
Plain gradient descent moves by lr times the gradient. If the gradient was divided by the loss scale although it did
not carry it, or was clipped while it still carried it, it is 1e4 to 1e5 times too small, and many float32 weights keep
their bits. This finding stands alone only where no such cause was seen.

## Fix
```diff
  scaler.scale(loss).backward()
+ scaler.unscale_(optimizer)                     # before anything that looks at the size of gradients
  torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
  scaler.step(optimizer)
```

## What would refute it
The sampled gradients, without the loss scale, are as small in a float32 run that learns.

## Source
[torch AMP examples](https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping);
Kingma and Ba, Adam, ICLR 2015, section 2.1
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pandas as pd

from ampscope.diagnose.finding import Abstain, Evidence, Where
from ampscope.diagnose.frames import items
from ampscope.diagnose.moments import gradient_norms
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import listed, sci


@rule("AMP506", "frozen-by-tiny-updates", "warning", needs=("updates",), depth=SYMPTOM)
def frozen_by_tiny_updates(rule: Rule, s: Signals) -> Found:
    """From the first sampled steps on, Adam steps far below lr, or updates that are nothing beside the weights."""
    rows = s.updates
    rows = rows[rows["dtype"].eq("float32") & rows["lr"].gt(0.0) & rows["grad_nonzero"].gt(0)]
    if rows.empty:
        yield Abstain("no update of a float32 parameter with a learning rate and a gradient was sampled")
        return
    p = s.params
    adam = {str(n) for n, b in zip(p["name"], p["betas"], strict=True) if len(items(b)) == 2}
    damped = set(p[p["eps"].gt(s.policy.eps_meant)]["name"].astype(str)) & adam
    rows = rows[~rows["name"].isin(damped)]
    for _, owned in rows.groupby(["rank", "proc", "opt"], dropna=False, sort=True):
        yield from _judge(rule, s, owned, adam)


def _judge(rule: Rule, s: Signals, rows: pd.DataFrame, adam: set[str]) -> Found:
    policy = s.policy
    steps = (int(rows["step"].min()), int(rows["step"].max()))
    names = sorted(rows["name"].astype(str).unique())
    where = Where(tensor=names[0], steps=steps)
    advice = "Look at what divides or clips the gradients between backward and the optimizer step."
    falsifier = "Without the loss scale, the gradients are as small in a float32 run that learns."
    scaled = list(_adam_steps(rows[rows["name"].isin(adam)], policy.adam_rate_most))
    early = scaled[: policy.early_samples]
    if early and max(statistics.median(scaled), statistics.median(early)) < policy.tiny_step:
        ratio = statistics.median(scaled)
        yield rule.finding(
            where,
            f"Adam's steps are about {sci(ratio)} times the learning rate where they should be about the learning rate "
            f"itself, from the first one on ({listed(names)}).",
            advice,
            evidence=(
                Evidence("size of a step, in learning rates", ratio),
                s.measure("largest step", "SELECT max(update_amax) FROM updates WHERE dtype = 'float32'"),
                s.measure("learning rate", "SELECT max(lr) FROM updates WHERE dtype = 'float32'"),
            ),
            falsifier=falsifier,
        )
        return
    if scaled:
        # Adam takes full steps, so nothing divides its gradients for good; how large the weights are is another matter.
        rows = rows[~rows["name"].isin(adam)]
        names = sorted(rows["name"].astype(str).unique())
    frozen = list(_relative(rows, gradient_norms(s, set(names))))
    first = frozen[: policy.early_samples]
    if not first:
        return
    update = max(statistics.median(x for x, _ in frozen), statistics.median(x for x, _ in first))
    gradient = max(statistics.median(x for _, x in frozen), statistics.median(x for _, x in first))
    if update >= policy.frozen_update or gradient >= policy.frozen_gradient:
        return
    where = replace(where, tensor=names[0])
    chosen = "FROM updates WHERE dtype = 'float32' AND lr > 0"
    yield rule.finding(
        where,
        f"From the first sampled step on, an update is {sci(update)} of the size of the float32 weights "
        f"({listed(names)}), and their gradient {sci(gradient)} of it: they hardly move.",
        advice,
        severity="warning" if gradient < policy.frozen_for_sure else "info",
        evidence=(
            Evidence("size of an update relative to the weights", update),
            Evidence("size of the gradient relative to the weights", gradient),
            s.measure("updates that leave the bits", f"SELECT sum(unchanged) / sum(grad_nonzero) {chosen}"),
            s.measure("largest update", f"SELECT max(update_amax) {chosen}"),
            s.measure("learning rate", f"SELECT max(lr) {chosen}"),
        ),
        falsifier=falsifier,
    )


def _relative(rows: pd.DataFrame, norms: Mapping[int, float]) -> Iterator[tuple[float, float]]:
    """Per segment in order: norm of the update of all parameters over that of the weights, and that of the gradient
    (of the update per lr where the gradient was not sampled: a learning rate can be as small as it wants to be)."""
    for segment, g in rows.groupby("segment", sort=True):
        update, weight = (
            float((g[c].astype(float) ** 2).sum() ** 0.5) for c in ("update_norm", "weight_norm")
        )
        if weight > 0.0:
            gradient = norms.get(int(str(segment)), update / float(g["lr"].astype(float).max()))
            yield update / weight, gradient / weight


def _adam_steps(rows: pd.DataFrame, most: float) -> Iterator[float]:
    """Per segment in order: root mean square of the steps of all parameters, in learning rates. Rates above `most` are
    those of methods that find their own."""
    for _, g in rows[rows["lr"].le(most)].groupby("segment", sort=True):
        moved = g["moved"].where(g["moved"].gt(0), g["grad_nonzero"]).astype(float)
        squares = float((g["update_norm"].astype(float) ** 2 / g["lr"].astype(float) ** 2).sum())
        yield (squares / float(moved.sum())) ** 0.5
