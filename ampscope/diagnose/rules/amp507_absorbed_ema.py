"""A running average kept in half precision does not follow: its increments are smaller than half a unit in the last
place and round away.

## How it shows
The EMA copy of a model evaluates like the model that it was copied from at the start, a teacher or target network
never changes, averaged statistics stay where they were. Training itself is fine.

## Why it happens
`average + weight * (value - average)` changes a stored number only if the increment reaches half a unit in its last
place: 2^-9 to 2^-8 of it in bfloat16, 2^-12 to 2^-11 in float16. With a weight of 0.001 the value must be off by up
to 390 % (bfloat16) or 49 % (float16) of the average before the average moves at all. Every single update is lost, and
they never add up. `copy_` of an average computed in float32 rounds in the same way.

## Fix
```diff
- ema = copy.deepcopy(model).to(torch.bfloat16)
+ ema = copy.deepcopy(model).float()                      # the copy accumulates in float32
  for slow, fast in zip(ema.parameters(), model.parameters()):
-     slow.lerp_(fast.to(slow.dtype), 0.001)
+     slow.lerp_(fast.detach().float(), 0.001)
```
Cast it to half only where it is used. Where memory forbids that: average every k steps with weight k * 0.001.

## What would refute it
A float32 average beside it, fed with the same values, stays equal to it within rounding.

## Source
[sd_dreambooth_extension #1417](https://github.com/d8ahazard/sd_dreambooth_extension/pull/1417);
IEEE 754-2019, clause 4.3.1 (rounding to nearest, ties to even)
"""

from __future__ import annotations

from collections.abc import Sequence

from ampscope.diagnose.finding import Abstain, Change, Evidence, Where
from ampscope.diagnose.increments import ULP, Write, groups, lost_query, lost_share, writes_of
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import percent, sci


@rule("AMP507", "absorbed-ema", "warning", needs=("steps",))
def absorbed_ema(rule: Rule, s: Signals) -> Found:
    """A running average in half, kept over steps, whose target must be far off before it moves."""
    if not s.rows["ops"]:
        yield Abstain("no census was recorded, so averages were not seen")
        return
    for group in groups(w for w in writes_of(s) if w.weight is not None):
        yield from _judge(rule, s, group)


def _judge(rule: Rule, s: Signals, group: Sequence[Write]) -> Found:
    policy = s.policy
    last = group[-1]
    weight = max(w.weight or 0.0 for w in group)
    reach = ULP[last.dtype] / 2.0 / weight
    if reach < policy.average_reach or any(w.repaired for w in (group[0], last)):
        return
    share = lost_share(group)
    observed = share is not None and share >= policy.absorbed_warning
    certain = reach >= policy.average_reach_certain and (share is None or not last.rounds_once)
    if not observed and not certain:
        return
    steps = [w.flow.step for w in group]
    lost = (
        f"{percent(share)} of its increments were rounded away" if observed else "its increments round away"
    )
    yield rule.finding(
        Where(module=last.op.module, op=last.op.op, file=last.op.file, line=last.op.line,
              steps=(min(steps), max(steps))),
        f"A running average in {last.dtype} takes {sci(weight)} of the new value at each update, and {lost}: it moves "
        f"only where the new value is off by more than {percent(reach)} of the average.",
        "Keep the average in float32 and cast it where it is used.",
        evidence=(
            s.measure("increments rounded away", lost_query(last)) if observed else None,
            Evidence("weight of the new value", weight),
            Evidence("distance that moves it, relative to the average", reach, "", "predicted"),
        ),
        falsifier="A float32 average fed with the same values stays equal to it within rounding.",
        change=Change(diff=f"- average kept in torch.{last.dtype}\n+ average.float()"),
    )  # fmt: skip
