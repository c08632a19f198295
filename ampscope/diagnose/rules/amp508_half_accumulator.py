"""A running sum or metric kept in half precision stops growing: at some size every further increment rounds away.

## How it shows
A reported average falls like 1/n although nothing improves, a counter stands at 256 or 2048, an accuracy saturates.
Training is fine: only the number is wrong.

## Why it happens
A half number has a fixed number of digits, 8 bits in bfloat16 and 11 in float16. Once the sum is 256 (bfloat16) or
2048 (float16) times the increment, sum + increment lies less than half a unit in the last place away and rounds back
to the sum. A loss that comes out of autocast is in half, and so is every sum that starts from it.

## Fix
```diff
- running = running + loss.detach()          # bfloat16, as autocast left it
+ running = running + loss.detach().float()
```
Or add Python floats: `running += loss.item()` (which waits for the device, so not in every step on a GPU).

## What would refute it
A float32 sum of the same numbers gives the same result.

## Source
[transformers #8561](https://github.com/huggingface/transformers/pull/8561);
[pytorch/xla #2425](https://github.com/pytorch/xla/pull/2425); IEEE 754-2019, clause 4.3.1
"""

from __future__ import annotations

from ampscope.diagnose.finding import Abstain, Change, Evidence, Finding, Where
from ampscope.diagnose.increments import lost_query, writes_of
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.sums import Forecast, RunningSum, forecast, running_sums
from ampscope.diagnose.text import percent, sci


@rule("AMP508", "half-accumulator", "warning", needs=("steps",))
def half_accumulator(rule: Rule, s: Signals) -> Found:
    """A half sum outside of the model that swallows its increments, or is heading there within the run."""
    if not s.rows["ops"]:
        yield Abstain("no census was recorded, so sums were not seen")
        return
    steps = s.steps.groupby(["rank", "proc"], dropna=False)["segment"].nunique().max()
    for found in running_sums(writes_of(s), s.policy):
        lost = found.lost
        if lost is not None and lost >= s.policy.absorbed_warning:
            yield _stopped(rule, s, found, lost)
            continue
        ahead = forecast(found, int(steps), s.policy)
        if ahead is not None:
            yield _will_stop(rule, found, ahead, int(steps))


_ADVICE = "Add in float32 (`.float()` before adding) or in Python numbers."


def _where(found: RunningSum) -> Where:
    op = found.last.op
    steps = [w.flow.step for w in found.writes]
    return Where(module=op.module, op=op.op, file=op.file, line=op.line, steps=(min(steps), max(steps)))


def _stopped(rule: Rule, s: Signals, found: RunningSum, lost: float) -> Finding:
    return rule.finding(
        _where(found),
        f"A running sum in {found.dtype} has stopped growing at {sci(found.top)}: {percent(lost)} of the increments "
        f"added to it at that size were rounded away.",
        _ADVICE,
        evidence=(
            Evidence("increments rounded away at its largest size", lost),
            s.measure("increments rounded away, all censuses", lost_query(found.last)),
            Evidence("largest size seen", found.top),
        ),
        falsifier="A float32 sum of the same numbers gives the same result.",
        change=Change(diff="- total = total + value\n+ total = total + value.float()"),
    )


def _will_stop(rule: Rule, found: RunningSum, ahead: Forecast, steps: int) -> Finding:
    return rule.finding(
        _where(found),
        f"A running sum in {found.dtype} grows by about {sci(ahead.increment)} at a time and was seen at "
        f"{sci(found.top)}; it stops growing at {sci(ahead.stop)}, at about step {ahead.step:.0f} of {steps}, unless "
        "it is reset before.",
        _ADVICE,
        severity="info",
        evidence=(
            Evidence("size at which it stops", ahead.stop, "", "predicted"),
            Evidence("step at which it stops", round(ahead.step), "steps", "predicted"),
            Evidence("increment", ahead.increment),
            Evidence("largest size seen", found.top),
        ),
        falsifier="The sum is reset before it reaches that size, or a float32 sum gives the same result.",
        change=Change(diff="- total = total + value\n+ total = total + value.float()"),
    )
