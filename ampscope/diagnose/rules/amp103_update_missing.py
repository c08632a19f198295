"""`scaler.update()` is not reached in every iteration: the next `unscale_` or `step` finds the old state.

## How it shows
`RuntimeError: unscale_() has already been called on this optimizer since the last update().` or `step() has already
been called since the last update().`, often long into the run: in the iteration after one that ended early.

## Why it happens
`update()` adapts the scale and resets the per-optimizer state. A `continue` after a bad loss, an exception that is
caught, or an `update()` that stands under an `if` skips it, and the state of that iteration stays behind. A scaler
that is built anew in every iteration never adapts its scale at all.

## Fix
```diff
  scaler.unscale_(optimizer)
  norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
- if not torch.isfinite(norm):
-     continue
  scaler.step(optimizer)
  scaler.update()
```
`scaler.step` skips steps with non-finite gradients by itself.

## What would refute it
The two calls belong to one accumulation window: that is AMP102.

## Source
[torch.amp.GradScaler.update](https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update)
"""

from __future__ import annotations

from ampscope.diagnose.accumulation import opened_iteration
from ampscope.diagnose.calls import of_kind
from ampscope.diagnose.families import CRASHED
from ampscope.diagnose.finding import Change
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count
from ampscope.diagnose.windows import Breach


@rule("AMP103", "update-missing", "critical", needs=("calls",), explains=("AMP108", *CRASHED))
def update_missing(rule: Rule, s: Signals) -> Found:
    """A scaler call that collides with an earlier iteration, or a run that steps and never updates."""
    wrong = [b for b in s.breaches if _lost_update(s, b)]
    for _, breaches in by_place(wrong, lambda b: b.call):
        call, prior = breaches[0].call, breaches[0].prior
        earlier = (
            f" after {prior.call.removeprefix('scaler.')} at line {prior.line}" if prior is not None else ""
        )
        yield rule.finding(
            at([b.call for b in breaches]),
            f"{call.call} on {call.target} came{earlier} with no update() in between"
            + (f", and raised {call.error}." if call.error else "."),
            "Call `scaler.update()` once in every iteration that unscales or steps, also in those that end early.",
            evidence=(
                s.measure("step calls", "SELECT count(*) FROM calls WHERE call = 'scaler.step'", "calls"),
                s.measure("update calls", "SELECT count(*) FROM calls WHERE call = 'scaler.update'", "calls"),
            ),
            falsifier="The two calls belong to one accumulation window (AMP102).",
            change=Change(diff="  scaler.step(optimizer)\n+ scaler.update()"),
        )
    if not wrong:
        yield from _never_updates(rule, s)


def _lost_update(s: Signals, breach: Breach) -> bool:
    if breach.kind == "unscale-after-unscale":
        return opened_iteration(s, breach)
    return breach.kind in ("unscale-after-step", "step-after-step")


def _never_updates(rule: Rule, s: Signals) -> Found:
    for stream in s.streams:
        steps = [c for c in of_kind(stream, "scaler.step") if c.error is None]
        scalers = {c.object for c in steps}
        if len(scalers) < s.policy.fresh_scalers or of_kind(stream, "scaler.update"):
            continue
        yield rule.finding(
            at(steps),
            f"{count(len(steps), 'step')} went through {count(len(scalers), 'GradScaler')} and update() was never "
            "called: the loss scale cannot adapt.",
            "Build one GradScaler before the loop and call `scaler.update()` after each step.",
            evidence=(
                s.measure("update calls", "SELECT count(*) FROM calls WHERE call = 'scaler.update'", "calls"),
            ),
            falsifier="update() is called where it was not seen.",
            change=Change(diff="  scaler.step(optimizer)\n+ scaler.update()"),
        )
