"""The loss scale grows again too soon: every growth runs straight into the next overflow and costs a step.

## How it shows
One step in three (or in five, or in twenty) is skipped all through the run. The scale is a saw-tooth between
two or three values. Loss, weights and forward are healthy.

## Why it happens
`GradScaler` doubles the scale after `growth_interval` good steps. Once the scale has found its ceiling, each
doubling overflows and is taken back. That probe is useful once in 2000 steps; once in a few steps it throws
away the work of every probe.

## Fix
```diff
- scaler = torch.amp.GradScaler(growth_interval=2)
+ scaler = torch.amp.GradScaler(growth_interval=2000)
```

## What would refute it
With a longer interval the share of skipped steps stays as it is: then something overflows at any scale.

## Source
[torch.amp.GradScaler](https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler);
[pytorch #40497](https://github.com/pytorch/pytorch/issues/40497)
"""

from __future__ import annotations

from collections.abc import Iterator

from ampscope.diagnose.finding import Change, Finding, Where
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.scales import ScalePath
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.symptoms import SKIPS
from ampscope.diagnose.text import count, percent, pow2

LONG_INTERVAL = 2000
"""The default of torch.amp.GradScaler."""


@rule("AMP202", "growth-interval-too-short", "warning", needs=("scaler",), explains=(SKIPS,))
def growth_interval_too_short(rule: Rule, s: Signals) -> Found:
    """A saw-tooth: most skips after the first search answer a growth, and they cost a measurable share of steps."""
    for path in s.scale_paths:
        yield from _judge(rule, s, path)


def _judge(rule: Rule, s: Signals, path: ScalePath) -> Iterator[Finding]:
    policy = s.policy
    updates = len(path.settled)
    answers = path.after_growth(policy.growth_skip_slack)
    others = path.unexplained_skips(policy.growth_skip_slack)
    if len(answers) < policy.sawtooth_min_skips or len(answers) < policy.sawtooth_skip_rate * updates:
        return
    if len(others) * 2 > len(answers) or len(answers) * 2 < len(path.growths):
        return
    share = len(answers) / updates
    steps = [path.updates[i].step for i in answers]
    scales = [path.updates[i].scale for i in answers]
    if max(scales) < policy.tiny_scale:
        return  # what overflows even without a loss scale has another cause
    where = f"rank = {path.rank} AND proc = {path.proc} AND scaler = '{path.scaler}'"
    interval = path.growth_interval
    yield rule.finding(
        Where(steps=(steps[0], steps[-1])),
        f"The scale overflows right after it grows, again and again: {count(len(answers), 'step')} of {updates} "
        f"({percent(share)}) were skipped for it, at {pow2(min(scales))} to {pow2(max(scales))}"
        + (f", because it is doubled after {count(interval, 'good step')}." if interval else "."),
        f"Set growth_interval to {LONG_INTERVAL} (200 or more in a short run).",
        evidence=(
            s.measure("skipped steps", f"SELECT count(*) FROM scaler WHERE found_inf AND {where}", "steps"),
            s.measure("growth_interval", f"SELECT min(growth_interval) FROM scaler WHERE {where}", "steps"),
            s.measure("highest scale", f"SELECT max(scale) FROM scaler WHERE {where}"),
        ),
        falsifier="With a longer growth_interval the share of skipped steps does not fall.",
        change=Change(set={"scaler.growth_interval": str(LONG_INTERVAL)}),
    )
