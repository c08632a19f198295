"""Gradients that overflowed in a skipped step are never cleared: every later step inherits their inf.

## How it shows
From one skipped step on, every step is skipped and the scale falls to zero, while loss and forward stay finite.

## Why it happens
`backward` adds to `.grad`. When an iteration that was skipped does not reach `zero_grad` (it stands under an `if`,
or the accumulation window goes on), inf stays in `.grad`, and inf plus anything is inf or NaN.

## Fix
```diff
+ optimizer.zero_grad(set_to_none=True)
  scaler.scale(loss).backward()
  scaler.step(optimizer)
  scaler.update()
```

## What would refute it
The gradients were finite, or absent, before the backward of a skipped step.

## Source
[torch.amp.GradScaler.step](https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step)
"""

from __future__ import annotations

from ampscope.diagnose.families import SKIPPING
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, listed


@rule("AMP109", "stale-inf-gradient", "critical", needs=("calls", "steps"), explains=("AMP302", *SKIPPING))
def stale_inf_gradient(rule: Rule, s: Signals) -> Found:
    """Skipped steps whose non-finite gradients were non-finite before their backward, with a finite loss."""
    rows = s.nonfinite
    stale = rows[rows["role"].eq("grad") & rows["stale"].fillna(False).astype(bool)]
    if stale.empty:
        return
    hit = s.steps.merge(stale[["rank", "proc", "segment"]].drop_duplicates(), on=["rank", "proc", "segment"])
    finite = hit[hit["loss_known"] & hit["loss"].abs().lt(float("inf"))]
    if finite.empty:
        return
    skips = s.steps[s.steps["outcome"].eq("skipped") & s.steps["step"].le(stale["step"].min())]
    origin = int(skips["step"].min()) if len(skips) else int(stale["step"].min())
    names = list(dict.fromkeys(stale["name"].astype(str)))
    backward = s.first_call("backward")
    yield rule.finding(
        Where(
            tensor=names[0],
            file=backward.file if backward else None,
            line=backward.line if backward else None,
            steps=(origin, int(stale["step"].max())),
        ),
        f"In {count(len(finite), 'skipped step')} with a finite loss the gradients of {listed(names)} held inf or NaN "
        "before backward began: they were left over from an earlier skipped step.",
        "Clear the gradients in every iteration, also after a skipped step.",
        evidence=(
            s.measure(
                "skipped steps with stale gradients",
                "SELECT count(DISTINCT (rank, proc, segment)) FROM nonfinite WHERE stale AND role = 'grad'",
                "steps",
            ),
            s.measure(
                "zero_grad calls", "SELECT count(*) FROM calls WHERE call = 'optimizer.zero_grad'", "calls"
            ),
            s.measure("backward calls", "SELECT count(*) FROM calls WHERE call = 'backward'", "calls"),
        ),
        falsifier="The gradients are finite or absent before each backward.",
        change=Change(diff="+ optimizer.zero_grad(set_to_none=True)\n  scaler.scale(loss).backward()"),
    )
