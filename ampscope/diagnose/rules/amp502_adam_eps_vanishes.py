"""Adam keeps its state in fp16, where eps = 1e-8 is zero and the squared gradients are zero as well: 0/0.

## How it shows
`model.half()` with Adam: loss and gradients are finite, and after the very first optimizer step some weights are
NaN. Rows that got no gradient (unused embeddings) go first.

## Why it happens
Adam divides by sqrt(v) + eps, and so do RMSprop and Adagrad. State inherits the dtype of the parameter. In fp16 a
squared gradient below 2^-25 is zero, and so is eps = 1e-8. Where v is zero the update is 0/0 = NaN, or g/0 = inf.
Fused Adam computes in float32 and keeps eps, but its v is stored in fp16 and still vanishes: then it divides by eps
alone.

## Fix
```diff
- model = model.half()
+ # parameters and optimizer state stay float32; autocast casts for the forward
+ with torch.autocast(device, dtype=torch.float16):
```
As a stop-gap, an eps that fp16 can hold: `Adam(params, eps=1e-4)`.

## What would refute it
With eps=1e-4 the same weights still become NaN in the first steps.

## Source
[pytorch #147437](https://github.com/pytorch/pytorch/issues/147437); Kingma and Ba, Adam, ICLR 2015, algorithm 1
"""

from __future__ import annotations

import pandas as pd

from ampscope.diagnose.families import FORWARD_OVERFLOW, RUINED
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.halfweights import state_of
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, listed, percent, sci

SECOND_MOMENTS = ("exp_avg_sq", "square_avg", "sum")
"""State by whose root a step is divided: Adam and its kin, RMSprop, Adagrad."""


@rule(
    "AMP502",
    "adam-eps-vanishes",
    "critical",
    needs=("params",),
    explains=("AMP503", "AMP505", "AMP115", *RUINED),
    later=FORWARD_OVERFLOW,
    depth=ROOT,
)
def adam_eps_vanishes(rule: Rule, s: Signals) -> Found:
    """fp16 second moments, an eps that fp16 rounds to zero, and either NaN weights after a step or vanished v."""
    held = {n: k for n, e in state_of(s).items() for k in SECOND_MOMENTS if e.get(k) == "float16"}
    params = s.params[s.params["name"].isin(held.keys()) & s.params["eps"].lt(s.policy.fp16_zero)]
    params = pd.concat([params, _not_yet_stepped(s)])
    if params.empty:
        return
    names = set(params["name"].astype(str))
    broken = _broken(s, names)
    vanished = _vanished(s, names)
    if broken.empty and vanished < s.policy.vanished_state:
        return
    eps = float(params["eps"].iloc[0])
    hit = sorted(broken["name"].astype(str).unique())
    steps = s.updates[s.updates["name"].isin(names)]["step"]
    first = int(broken["step"].min()) if len(broken) else int(steps.min()) if len(steps) else 0
    effect = (
        f"{count(len(hit), 'parameter')} ({listed(hit)}) held NaN or inf after step {first}"
        if hit
        else "its updates divide by almost nothing"
    )
    yield rule.finding(
        Where(
            tensor=hit[0] if hit else sorted(names)[0],
            steps=(first, int(steps.max()) if len(steps) else first),
        ),
        f"{params['owner'].iloc[0]} keeps {held.get(str(params['name'].iloc[0]), 'its second moments')} in float16, "
        f"where eps={sci(eps)} is zero and "
        f"{percent(vanished)} of the second moments are zero too: {effect}.",
        "Keep parameters and optimizer state in float32 (autocast instead of .half()); as a stop-gap use "
        "eps=1e-4.",
        evidence=(
            s.measure("eps", "SELECT min(eps) FROM params WHERE dtype = 'float16'"),
            s.measure(
                "zero second moments",
                "SELECT sum(zeros) / sum(numel) FROM tensors WHERE role = 'exp_avg_sq' AND dtype = 'float16'",
            ),
            s.measure(
                "non-finite weights after the first step",
                "SELECT sum(nonfinite_after) FROM updates WHERE dtype = 'float16' AND "
                "segment = (SELECT min(segment) FROM updates WHERE nonfinite_after > 0)",
                "elements",
            ),
        ),
        falsifier="With eps=1e-4 the same weights still become NaN.",
        change=Change(set={"optimizer.eps": "1e-4"}, diff="- model = model.half()\n+ Adam(..., eps=1e-4)"),
    )


def _broken(s: Signals, names: set[str]) -> pd.DataFrame:
    """Updates that left NaN or inf in these parameters, if the first of them had finite gradients to work with."""
    rows = s.updates[s.updates["name"].isin(names)]
    broken = rows[rows["nonfinite_after"].gt(0)]
    if len(broken):
        first = rows[rows["segment"].eq(broken["segment"].min())]
        if first["grad_nonzero"].fillna(1).sum() == 0:
            return broken.iloc[:0]
    return broken


def _not_yet_stepped(s: Signals) -> pd.DataFrame:
    """fp16 parameters of an optimizer with an eps whose state was not made yet when they were described."""
    p = s.params
    fresh = p["state_dtypes"].map(lambda v: v is None or isinstance(v, float) or len(v) == 0)
    known = set(state_of(s))
    small = p["dtype"].eq("float16") & p["requires_grad"].fillna(False) & p["eps"].lt(s.policy.fp16_zero)
    return p[fresh & small & ~p["name"].isin(known)]


def _vanished(s: Signals, names: set[str]) -> float:
    """Share of zero second moments; embeddings that were not used are among them and are hit first."""
    rows = s.tensors("exp_avg_sq")
    rows = rows[rows["name"].isin(names) & rows["dtype"].eq("float16")]
    total = rows["numel"].sum()
    return float(rows["zeros"].sum() / total) if total else 0.0
