"""Weights became NaN or inf: from that step on the model is lost, whatever made them so.

## How it shows
The loss is NaN in every step from some step on, also for batches that were fine before. With a scaler every further
step is skipped. Only a checkpoint from before brings the model back.

## Why it happens
A NaN gradient was applied because nothing checked it (no GradScaler, or one that was bypassed); the optimizer divided
by zero although the gradient was finite (half state, eps that vanishes); a step was so large that the weight
overflowed; or the loss scale reached 0, so that unscaling multiplies by inf. This finding stands alone only where none
of these could be shown.

## Fix
```diff
+ if not torch.isfinite(loss):
+     raise RuntimeError(f"loss {loss} at step {step}")     # stop before the weights are gone
  loss.backward()
  optimizer.step()
```
Go back to the last good checkpoint, and look at the step that this finding names.

## What would refute it
The parameters of the checkpoint after that step are finite.

## Source
[pytorch AMP recipe](https://docs.pytorch.org/docs/stable/notes/amp_examples.html)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from ampscope.diagnose.finding import Abstain, Where
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.symptoms import BAD_LOSS, BAD_WEIGHTS, SCALE_FALL, SKIPS
from ampscope.diagnose.text import count, listed, sci


@rule(
    "AMP505",
    "nonfinite-weights",
    "critical",
    needs=("steps",),
    explains=("AMP121", "AMP201", "AMP410", "AMP411", BAD_LOSS, BAD_WEIGHTS, SKIPS, SCALE_FALL),
    depth=SYMPTOM,
)
def nonfinite_weights(rule: Rule, s: Signals) -> Found:
    """The first step after which a weight was seen to hold NaN or inf, and what its gradients were then."""
    if not (s.rows["updates"] or s.rows["nonfinite"] or s.rows["tensors"]):
        yield Abstain("no weights were looked at in this run")
        return
    bad = _sightings(s)
    if bad.empty:
        return
    first = bad.iloc[0]
    here = bad[bad["rank"].eq(first["rank"]) & bad["proc"].eq(first["proc"])]
    names = list(dict.fromkeys(here[here["segment"].eq(first["segment"])]["name"].astype(str)))
    how = _how(s, first)
    yield rule.finding(
        Where(tensor=names[0], steps=(int(first["step"]), int(here["step"].max()))),
        f"{count(len(names), 'parameter')} ({listed(names)}) held NaN or inf {how.when} step {int(first['step'])}: "
        f"{how.claim}.",
        f"{how.advice} Go back to a checkpoint from before that step.",
        evidence=(
            s.measure("first step with non-finite weights", f"SELECT min(step) FROM ({SIGHTINGS})"),
            s.measure(
                "parameters hit in the run", f"SELECT count(DISTINCT name) FROM ({SIGHTINGS})", "parameters"
            ),
            s.measure("smallest loss scale", "SELECT min(scale) FROM scaler"),
        ),
        falsifier="The parameters of a checkpoint after that step are finite.",
    )


SIGHTINGS = (
    "SELECT rank, coalesce(proc, 0) AS proc, segment, step, name, TRUE AS after_step FROM updates WHERE "
    "nonfinite_after > 0 UNION ALL SELECT rank, coalesce(proc, 0), segment, step, name, FALSE FROM nonfinite WHERE "
    "role = 'weight' UNION ALL SELECT rank, coalesce(proc, 0), segment, step, name, FALSE FROM tensors WHERE "
    "role = 'weight' AND nan + posinf + neginf > 0"
)


def _sightings(s: Signals) -> pd.DataFrame:
    return s.frame(f"SELECT * FROM ({SIGHTINGS}) ORDER BY rank, proc, segment, after_step, name LIMIT 1000")


@dataclass(frozen=True)
class _How:
    when: str
    claim: str
    advice: str


def _how(s: Signals, first: pd.Series[Any]) -> _How:
    """What is known of the step that the weights went bad in."""
    at = f"rank = {first['rank']} AND coalesce(proc, 0) = {first['proc']}"
    when = "after" if first["after_step"] else "at"
    step = s.frame(f"SELECT outcome, scale FROM steps WHERE {at} AND segment = {first['segment']}")
    scale = None if step.empty or pd.isna(step["scale"].iloc[0]) else float(step["scale"].iloc[0])
    if scale == 0.0:
        return _How(
            when,
            "the loss scale had reached 0, and unscaling multiplied by 1/0",
            "Find what drove the scale down.",
        )
    gradient = s.frame(
        "SELECT sum(nan + posinf + neginf) AS bad, count(*) AS n FROM tensors WHERE role = 'grad' AND "
        f"stage = 'post_clip' AND {at} AND segment = {first['segment']}"
    ).iloc[0]
    if not first["after_step"]:
        claim = (
            "when they were first looked at"
            if int(first["step"]) == 0
            else "they were finite when last sampled before"
        )
        return _How(when, claim, "Look at what that step, or the one before it, did to them.")
    if not int(gradient["n"]):
        return _How(
            when, "the gradients of that step were not sampled", "Check the gradients before each step."
        )
    if float(gradient["bad"] or 0.0) > 0.0:
        return _How(
            when,
            "its gradients held NaN or inf, and nothing kept the optimizer from applying them",
            "Use a GradScaler, or check the gradients before each step.",
        )
    size = s.frame(f"SELECT max(lr) AS lr FROM updates WHERE {at} AND segment = {first['segment']}")[
        "lr"
    ].iloc[0]
    return _How(
        when,
        f"its gradients were finite, so the optimizer's own arithmetic made them (learning rate {sci(size)})",
        "Keep parameters and optimizer state in float32, or lower the learning rate.",
    )
