"""Part of the matrix products of a low-precision run stays in float32.

## How it shows
Autocast is on and most layers run in half, but the step is hardly faster. A few modules or lines take a good part of
the time.

## Why it happens
A region with autocast switched off, a module outside of the context, an operand cast to float32 by hand, a custom
function, or an op that autocast runs in float32. Often this is on purpose: a head, a loss or a positional term that
needs the range. The headroom says whether lowering it is safe: how many binades its largest value lies below 65504.
Some functions of PyTorch widen their half inputs themselves: attention without a fused kernel is one.

## Fix
```diff
- with torch.autocast(device, enabled=False):
-     scores = q.float() @ k.float().transpose(-2, -1)
+ scores = q @ k.transpose(-2, -1)                 # inside autocast
```

## What would refute it
In half precision the region overflows or the loss changes: then it is float32 for a reason.

## Source
[torch.amp](https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference)
"""

from __future__ import annotations

import math

from ampscope.diagnose.census import censuses
from ampscope.diagnose.finding import Change, Evidence, Where
from ampscope.diagnose.opflow import Op
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import listed, percent, sci
from ampscope.diagnose.transitions import MATMUL
from ampscope.diagnose.work import MATMULS, Work, low_dtype, span, works_of

OWN = (
    "Nothing in the script keeps it there: PyTorch computes it in float32 itself, as scaled_dot_product_attention does "
    "without a fused kernel. A mask or a dropout that such a kernel supports brings one."
)


@rule("AMP602", "float32-island", "warning", needs=("ops",), depth=SYMPTOM)
def float32_island(rule: Rule, s: Signals) -> Found:
    """Matrix products in float32, at places that never run in half, while others do."""
    dtype = low_dtype(s)
    works = works_of(s)
    total, half = sum(w.flops for w in works), sum(w.half for w in works)
    if dtype is None or not half:
        return
    every = [w for w in works if w.float32 and not w.half]
    inner = _by_torch(s)
    islands = [w for w in every if _place(w) not in inner] or every
    share = sum(w.float32 for w in islands) / total
    if share < s.policy.island_share:
        return
    first = islands[0]
    own = _place(first) in inner
    lower, why = (OWN, None) if own else _advice(s, islands, dtype)
    names = list(dict.fromkeys(_name(w) for w in islands))
    yield rule.finding(
        Where(module=first.module, op=first.op, file=first.file, line=first.line, steps=span(s)),
        f"{percent(share)} of the matmul work stays in float32 although autocast runs the rest in {dtype}: "
        f"{listed(names)}.",
        lower,
        severity="warning" if s.device == "cuda" and share >= s.policy.island_costly else "info",
        evidence=(
            s.measure(
                "share of matmul work in float32",
                f"SELECT sum(flops) FILTER (out_dtypes[1] = 'float32') / sum(flops) {MATMULS}",
            ),
            why,
        ),
        falsifier="In half precision the region overflows, or the step takes as long.",
        change=None
        if own
        else Change(diff="- with torch.autocast(device, enabled=False):\n+ # leave it inside autocast"),
    )


def _place(w: Work | Op) -> tuple[str | None, str | None, int | None]:
    return w.module, w.file, w.line


def _by_torch(s: Signals) -> set[tuple[str | None, str | None, int | None]]:
    """Places of float32 products whose operands torch itself widened from half there: no region that the script keeps
    out of autocast, but the inside of a function such as scaled_dot_product_attention."""
    return {
        _place(op)
        for census in censuses(s)
        for op in census.flow.ops
        if op.phase == "forward" and op.op in MATMUL and op.out_dtypes[:1] == ("float32",)
        if any(_place(a) == _place(op) and _widened(a) for _, a in census.flow.ancestors(op))
    }


def _widened(op: Op) -> bool:
    return op.cast == "autocast" and op.from_half is not None and "float32" in op.out_dtypes


def _name(w: Work) -> str:
    return w.module or (f"line {w.line}" if w.line else w.op)


def _advice(s: Signals, islands: list[Work], dtype: str) -> tuple[str, Evidence | None]:
    """What to do, and the headroom that says so."""
    amax = max((w.amax for w in islands if w.amax is not None), default=None)
    if dtype == "bfloat16":
        return (
            "Move it inside autocast: bfloat16 has the range of float32, so only digits are at stake.",
            None,
        )
    if not amax:
        return "Move it inside autocast if its values stay well below 65504.", None
    room = math.log2(65504.0) - math.log2(amax)
    evidence = Evidence("headroom below 65504", round(room, 2), "binades")
    if room >= s.policy.island_headroom:
        return (
            f"Move it inside autocast: its largest value is {sci(amax)}, {room:.1f} binades below 65504.",
            evidence,
        )
    return (
        f"Leave it in float32: its largest value is {sci(amax)}, only {room:.1f} binades below 65504.",
        evidence,
    )
