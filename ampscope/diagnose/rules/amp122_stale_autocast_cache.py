"""One autocast context round the whole loop: the forward uses low-precision copies of the weights of the first step.

## How it shows
The loss hardly changes although gradients, updates and float32 weights are normal. Evaluation outside the context
shows a model that did learn something else.

## Why it happens
Autocast keeps the low-precision copy of each float32 parameter until its outermost context ends, so that a weight is
cast once per forward. When `optimizer.step()` runs inside the same context, the parameters change and the copies stay.

## Fix
```diff
- with torch.autocast(device, dtype=torch.bfloat16):
-     for x, y in loader:
-         loss = criterion(model(x), y)
-         loss.backward(); optimizer.step()
+ for x, y in loader:
+     with torch.autocast(device, dtype=torch.bfloat16):
+         loss = criterion(model(x), y)
+     loss.backward(); optimizer.step()
```
Or `torch.autocast(..., cache_enabled=False)`.

## What would refute it
The weights are cast again in every iteration.

## Source
[torch.autocast: cache_enabled](https://docs.pytorch.org/docs/stable/amp.html#torch.autocast)
"""

from __future__ import annotations

from ampscope.diagnose.finding import Abstain, Change
from ampscope.diagnose.places import at
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count

_CASTS = (
    "SELECT rank, proc, segment, count(*) FILTER (\"cast\" = 'autocast' AND cast_source IS NOT NULL) AS casts, "
    "count(*) FILTER (flops > 0 AND list_has_any(out_dtypes, ['float16', 'bfloat16'])) AS half "
    "FROM ops WHERE segment IN (SELECT segment FROM steps WHERE level = 'census') GROUP BY ALL "
    "ORDER BY rank, proc, segment"
)


@rule("AMP122", "stale-autocast-cache", "critical", needs=("calls",))
def stale_autocast_cache(rule: Rule, s: Signals) -> Found:
    """Optimizer steps under autocast, and weight casts in the first sampled step that later ones lack."""
    inside = [
        c for c in s.calls if c.call in ("optimizer.step", "scaler.step") and c.autocast_dtype is not None
    ]
    inside = [c for c in inside if not c.has("via_scaler")]
    if not inside:
        return
    frame = s.frame(_CASTS)
    if len(frame) < 2:
        yield Abstain("optimizer steps ran under autocast, and fewer than two steps were sampled op by op")
        return
    first, later = frame.iloc[0], frame.iloc[1:]
    stale = later[later["casts"].eq(0) & later["half"].gt(0)]
    if not first["casts"] or len(stale) < len(later):
        return
    yield rule.finding(
        at(inside),
        f"The optimizer stepped {count(len(inside), 'time')} inside one {inside[0].autocast_dtype} autocast context. "
        f"The first sampled step cast {count(int(first['casts']), 'weight')}, the later ones none: the forward runs "
        "on copies of the weights from before the first update.",
        "Enter autocast once per forward and step outside of it, or pass cache_enabled=False.",
        evidence=(
            s.measure(
                "weights cast in the first sampled step",
                "SELECT count(*) FROM ops WHERE \"cast\" = 'autocast' AND cast_source IS NOT NULL AND segment = "
                "(SELECT min(segment) FROM steps WHERE level = 'census')",
                "casts",
            ),
            s.measure(
                "weights cast in the last sampled step",
                "SELECT count(*) FROM ops WHERE \"cast\" = 'autocast' AND cast_source IS NOT NULL AND segment = "
                "(SELECT max(segment) FROM steps WHERE level = 'census')",
                "casts",
            ),
            s.measure(
                "optimizer steps under autocast",
                "SELECT count(*) FROM calls WHERE call = 'optimizer.step' AND autocast_dtype IS NOT NULL",
                "calls",
            ),
        ),
        falsifier="The weights are cast again in every iteration.",
        change=Change(diff="+ cache_enabled=False"),
    )
