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
from ampscope.diagnose.frames import number
from ampscope.diagnose.pace import WARM
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import percent, sci
from ampscope.diagnose.work import span

WAIT = "greatest(data_s - coalesce(own_s, 0), 0)"
"""Of a wait that holds time of ampscope's own, this much is the script's at least."""


@rule("AMP704", "input-bound", "warning", needs=("steps",), explains=("AMP703",), depth=SYMPTOM)
def input_bound(rule: Rule, s: Signals) -> Found:
    """The median share of a step before its first forward, where it is long enough to be data."""
    for levels in ("('pulse')", "('pulse', 'range')"):
        chosen = (
            f"FROM steps WHERE level IN {levels} AND outcome IN ('stepped', 'skipped') AND segment >= {WARM} AND "
            "duration_s > 0"
        )
        row = s.frame(
            f"SELECT count(*) AS n, median({WAIT} / duration_s) AS share, median({WAIT}) AS wait, "
            f"median(duration_s) AS step {chosen}"
        ).iloc[0]
        if row["n"] >= s.policy.compared_steps:
            break
    else:
        yield Abstain(f"only {int(row['n'])} steps were timed without a census")
        return
    share, wait, step = number(row["share"]), number(row["wait"]), number(row["step"])
    if share < s.policy.waiting_share or wait < s.policy.waiting_s:
        return
    yield rule.finding(
        Where(steps=span(s)),
        f"{percent(share)} of a step ({sci(1e3 * wait)} ms of {sci(1e3 * step)} ms) "
        "passes before the first forward: precision is not the bottleneck.",
        "Load and prepare the data in worker processes, ahead of the step.",
        severity="warning" if s.device == "cuda" else "info",
        evidence=(
            s.measure(
                "share of a step before the first forward", f"SELECT median({WAIT} / duration_s) {chosen}"
            ),
            s.measure("median wait", f"SELECT median({WAIT}) {chosen}", "s"),
            s.measure("median step", f"SELECT median(duration_s) {chosen}", "s"),
        ),
        falsifier="With one batch used again and again the step takes as long.",
        change=Change(diff="- DataLoader(data)\n+ DataLoader(data, num_workers=8, pin_memory=True)"),
    )
