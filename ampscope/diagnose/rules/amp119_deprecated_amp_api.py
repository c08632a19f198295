"""The script uses an AMP spelling that PyTorch has deprecated.

## How it shows
A `FutureWarning` at the first use. Nothing is wrong with the numbers.

## Why it happens
`torch.cuda.amp` and `torch.cpu.amp` became `torch.amp`, with the device as an argument; apex.amp came before both.

## Fix
```diff
- with torch.cuda.amp.autocast():
+ with torch.amp.autocast("cuda"):
- scaler = torch.cuda.amp.GradScaler()
+ scaler = torch.amp.GradScaler("cuda")
```

## What would refute it
The call comes from a library, not from this script.

## Source
[torch.amp](https://docs.pytorch.org/docs/stable/amp.html)
"""

from __future__ import annotations

from ampscope.diagnose.finding import Change
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import listed


@rule("AMP119", "deprecated-amp-api", "info", needs=("calls",))
def deprecated_amp_api(rule: Rule, s: Signals) -> Found:
    """Calls that the recorder marked as deprecated, by line."""
    old = [c for c in s.calls if c.call == "deprecated"]
    for _, calls in by_place(old, lambda c: c):
        names = list(dict.fromkeys(c.object or "" for c in calls))
        device = "cpu" if ".cpu." in names[0] else "cuda"
        what = names[0].rpartition(".")[2]
        yield rule.finding(
            at(calls),
            f"{listed(names)} is deprecated.",
            f'Write torch.amp.{what}("{device}") instead.',
            evidence=(
                s.measure(
                    "deprecated calls", "SELECT count(*) FROM calls WHERE call = 'deprecated'", "calls"
                ),
            ),
            falsifier="The call comes from a library.",
            change=Change(diff=f'- torch.{device}.amp.{what}()\n+ torch.amp.{what}("{device}")'),
        )
