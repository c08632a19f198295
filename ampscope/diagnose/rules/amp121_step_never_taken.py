"""The run never took an optimizer step: every one was skipped, or none was asked for.

## How it shows
Loss and metrics are what the initial weights give, or NaN, from start to end.

## Why it happens
A GradScaler skips each step whose gradients hold inf or NaN; when the cause is in the forward pass, it skips all of
them. Or gradients are computed and the loop never calls `step`. Where another finding explains it, this one stands
below that.

## Fix
```diff
  scaler.scale(loss).backward()
+ scaler.step(optimizer)
+ scaler.update()
```
When every step was skipped, record with `ampscope run --watch` to see the op that overflows.

## What would refute it
A weight changed during the run.

## Source
[torch.amp.GradScaler.step](https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step)
"""

from __future__ import annotations

from ampscope.diagnose.calls import of_kind
from ampscope.diagnose.finding import Where
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.symptoms import BAD_LOSS, CRASH, SCALE_FALL, SKIPS
from ampscope.diagnose.text import count


@rule(
    "AMP121",
    "step-never-taken",
    "critical",
    needs=("steps", "calls"),
    explains=("AMP112", "AMP201", SKIPS, SCALE_FALL, BAD_LOSS),
    depth=SYMPTOM,
)
def step_never_taken(rule: Rule, s: Signals) -> Found:
    """Several steps asked for, all skipped; or an optimizer and several backwards, and no step."""
    steps = s.steps
    skipped = steps[steps["outcome"].eq("skipped")]
    if s.steps_taken:
        return
    evidence = (
        s.measure("steps taken", "SELECT count(*) FROM steps WHERE outcome = 'stepped'", "steps"),
        s.measure("steps skipped", "SELECT count(*) FROM steps WHERE outcome = 'skipped'", "steps"),
    )
    if len(skipped) >= s.policy.never_taken:
        yield rule.finding(
            Where(steps=(int(skipped["step"].min()), int(skipped["step"].max()))),
            f"All {count(len(skipped), 'optimizer step')} were skipped because of non-finite gradients: the model is "
            "what it was at the start.",
            "Record with `ampscope run --watch` to see the op that gives inf or NaN.",
            evidence=evidence,
            falsifier="A weight changed during the run.",
        )
        return
    backwards = [c for c in of_kind(s.calls, "backward") if c.error is None and c.n_params and c.target]
    ended = s.info.state == "complete" and s.events[s.events["event"].eq("exception")].empty
    if ended and not len(skipped) and len(backwards) >= s.policy.never_stepped:
        yield rule.finding(
            Where(
                file=backwards[0].file, line=backwards[0].line, steps=(backwards[0].step, backwards[-1].step)
            ),
            f"{count(len(backwards), 'backward')} fed parameters of {backwards[0].target}, which never stepped.",
            "Call `optimizer.step()`, or `scaler.step(optimizer)` with a scaler, after backward.",
            evidence=evidence,
            falsifier="A weight changed during the run.",
            causes=(CRASH,),
        )
