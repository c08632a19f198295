"""A half-precision tensor made under autocast reaches a float32 layer outside of it.

## How it shows
`RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float`, in the forward.

## Why it happens
Under autocast a Linear returns half. Once the context has ended nothing casts any more, and a float32 layer that gets
the half tensor cannot multiply it. The same happens inside the context for ops that autocast does not know and that
demand one dtype (scatter, index_put).

## Fix
```diff
  with torch.autocast(device, dtype=torch.float16):
      features = backbone(x)
- z = head(features)
+     z = head(features)
```
Or `head(features.float())`.

## What would refute it
No autocast context was entered before the error.

## Source
[torch.amp: autocasting](https://docs.pytorch.org/docs/stable/amp.html#autocasting)
"""

from __future__ import annotations

from ampscope.diagnose.calls import of_kind
from ampscope.diagnose.dtypes import ending, in_custom_backward, mismatch
from ampscope.diagnose.families import CRASHED
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals


@rule("AMP124", "half-leaves-autocast", "critical", explains=("AMP121", *CRASHED))
def half_leaves_autocast(rule: Rule, s: Signals) -> Found:
    """The run ended with a dtype error in a forward, after an autocast context was entered."""
    end = ending(s)
    if end is None or not mismatch(end.message) or end.in_backward or in_custom_backward(end):
        return
    contexts = [c for c in of_kind(s.calls, "autocast.enter", "autocast.exit") if c.enabled]
    if not contexts:
        return
    outside = contexts[-1].call == "autocast.exit"
    last = s.modules[s.modules["segment"].eq(end.segment)].tail(1)
    module = str(last["name"].iloc[0]) if len(last) and not len(last["out_dtypes"].iloc[0]) else None
    where = "outside the autocast context that made it" if outside else "in an op that autocast does not cast"
    yield rule.finding(
        Where(module=module, file=end.file, line=end.line, steps=(end.step, end.step)),
        f"A {contexts[-1].dtype} tensor met float32 {where}: {end.message}.",
        "Keep the consumer inside the autocast context, or convert the tensor with `.float()`.",
        evidence=(
            s.measure("exception", "SELECT last(message ORDER BY t) FROM events WHERE event = 'exception'"),
            s.measure(
                "autocast contexts left before it",
                "SELECT count(*) FROM calls WHERE call = 'autocast.exit' AND enabled",
                "calls",
            ),
        ),
        falsifier="No autocast context was entered before the error.",
        change=Change(diff="- z = head(features)\n+ z = head(features.float())"),
    )
