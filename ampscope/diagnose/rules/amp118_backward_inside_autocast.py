"""`backward()` is called while autocast is still on.

## How it shows
Usually not at all. Custom backward functions and double backward may run ops in another dtype than the forward did,
or raise a dtype error.

## Why it happens
Autograd runs each backward op in the dtype of its forward op. Autocast adds nothing to that; ops that a custom
`Function.backward` or a hook runs are cast once more, which is not what they were written for.

## Fix
```diff
  with torch.autocast(device, dtype=torch.float16):
      loss = criterion(model(x), y)
-     scaler.scale(loss).backward()
+ scaler.scale(loss).backward()
```

## What would refute it
The context had ended at that line.

## Source
[torch.amp](https://docs.pytorch.org/docs/stable/amp.html#autocasting): "Backward passes under autocast are not
recommended."
"""

from __future__ import annotations

from ampscope.diagnose.dtypes import mismatch
from ampscope.diagnose.families import CRASHED
from ampscope.diagnose.finding import Change
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count


@rule("AMP118", "backward-inside-autocast", "info", needs=("calls",))
def backward_inside_autocast(rule: Rule, s: Signals) -> Found:
    """backward with autocast in force; critical when it raised a dtype error."""
    inside = [c for c in s.calls if c.call == "backward" and c.autocast_dtype is not None]
    for _, calls in by_place(inside, lambda c: c):
        failed = next((c for c in calls if mismatch(c.message)), None)
        yield rule.finding(
            at(calls),
            f"backward() ran {count(len(calls), 'time')} with {calls[0].autocast_dtype} autocast on"
            + (f" and raised {failed.error}: {failed.message}" if failed else "."),
            "End the autocast context before backward.",
            severity="critical" if failed else "info",
            evidence=(
                s.measure(
                    "backward calls under autocast",
                    "SELECT count(*) FROM calls WHERE call = 'backward' AND autocast_dtype IS NOT NULL",
                    "calls",
                ),
            ),
            falsifier="The context had ended before that line.",
            change=Change(diff="-     scaler.scale(loss).backward()\n+ scaler.scale(loss).backward()"),
            causes=CRASHED if failed else (),
        )
