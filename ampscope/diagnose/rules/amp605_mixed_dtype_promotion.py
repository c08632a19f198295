"""A half tensor meets a small float32 one and becomes float32; what follows is computed in float32 unnoticed.

## How it shows
Memory and time per step are higher than half precision should need. Activations behind one line are float32.

## Why it happens
PyTorch promotes: half + float32 = float32, whatever the sizes, unless the float32 tensor has no dimension. A scale
parameter per channel, a mask, a table of positions or a constant in float32 is enough. Autocast casts again at the
next matrix product, but all elementwise work until there, and what backward keeps of it, is float32.

## Fix
```diff
- x = x + self.position                              # float32 parameter, half activations
+ x = x + self.position.to(x.dtype)
```

## What would refute it
The line is meant to be in float32 (a residual stream that must not lose digits).

## Source
[torch type promotion](https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc)
"""

from __future__ import annotations

from ampscope.diagnose.census import censuses
from ampscope.diagnose.finding import Change, Evidence, Where
from ampscope.diagnose.promotions import promotions_of
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import percent


@rule("AMP605", "mixed-dtype-promotion", "info", needs=("ops",), depth=SYMPTOM)
def mixed_dtype_promotion(rule: Rule, s: Signals) -> Found:
    """Elementwise ops that widen half activations because of a small float32 tensor, and what that costs."""
    found = censuses(s)
    if not found:
        return
    census = found[-1]
    for p in promotions_of(census)[:1]:
        if p.share < s.policy.promoted_share:
            return
        op, half = p.op, p.op.from_half
        yield rule.finding(
            Where(
                module=op.module,
                op=op.op,
                file=op.file,
                line=op.line,
                steps=(census.flow.step, census.flow.step),
            ),
            f"The {op.op} of this line widens a {half} tensor of shape {op.out_shapes[0]} to float32 because the other "
            f"one, of shape {p.wide}, is float32; {percent(p.share)} of the bytes that the forward writes are float32 "
            f"because of it.",
            "Cast the smaller tensor: `.to(x.dtype)`, if float32 is not meant there.",
            evidence=(
                Evidence("share of the forward's bytes", p.share),
                s.measure(
                    "bytes of that result",
                    f"SELECT out_bytes FROM ops WHERE rank = {census.flow.rank} AND coalesce(proc, 0) = "
                    f"{census.flow.proc} AND segment = {census.flow.segment} AND seq = {op.seq}",
                    "bytes",
                ),
            ),
            falsifier="The line is meant to be in float32, or the step is as fast and as small without it.",
            change=Change(diff="- x = x + table\n+ x = x + table.to(x.dtype)"),
        )
