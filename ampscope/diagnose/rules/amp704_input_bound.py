"""Most of a step passes before the model is called: the data set the pace, not the precision.

## How it shows
The step takes as long in half as in float32. The device idles between steps. A cheaper model does not help.

## Why it happens
Decoding, augmentation, collation or reading in the main process, too few workers, no prefetching, a slow disk.

## Fix
```diff
- loader = DataLoader(data, batch_size=64)
+ loader = DataLoader(data, batch_size=64, num_workers=8, pin_memory=True, persistent_workers=True)
```

## What would refute it
With one batch used again and again the step takes as long.

## Source
[torch performance tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
"""

from __future__ import annotations

from ampscope.diagnose.finding import Abstain, Change, Where
from ampscope.diagnose.pace import median_share, plain_steps
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import percent, sci
from ampscope.diagnose.work import span

CHOSEN = "FROM steps WHERE level = 'pulse' AND outcome IN ('stepped', 'skipped') AND segment >= 3 AND duration_s > 0"


@rule("AMP704", "input-bound", "warning", needs=("steps",), depth=SYMPTOM)
def input_bound(rule: Rule, s: Signals) -> Found:
    """The median share of a step before its first forward, where it is long enough to be data."""
    rows = plain_steps(s)
    if len(rows) < s.policy.compared_steps:
        yield Abstain(f"only {len(rows)} steps were timed without being sampled")
        return
    share, wait = median_share(rows, "data_s"), float(rows["data_s"].median())
    if share is None or share < s.policy.waiting_share or wait < s.policy.waiting_s:
        return
    yield rule.finding(
        Where(steps=span(s)),
        f"{percent(share)} of a step ({sci(1e3 * wait)} ms of {sci(1e3 * float(rows['duration_s'].median()))} ms) "
        "passes before the first forward: precision is not the bottleneck.",
        "Load and prepare the data in worker processes, ahead of the step.",
        severity="warning" if s.device == "cuda" else "info",
        evidence=(
            s.measure(
                "share of a step before the first forward", f"SELECT median(data_s / duration_s) {CHOSEN}"
            ),
            s.measure("median wait", f"SELECT median(data_s) {CHOSEN}", "s"),
            s.measure("median step", f"SELECT median(duration_s) {CHOSEN}", "s"),
        ),
        falsifier="With one batch used again and again the step takes as long.",
        change=Change(diff="- DataLoader(data)\n+ DataLoader(data, num_workers=8, pin_memory=True)"),
    )
