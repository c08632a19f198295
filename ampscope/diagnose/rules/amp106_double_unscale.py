"""Gradients are divided by the loss scale by hand and then again by the scaler: updates are `scale` times too small.

## How it shows
The model does not move at all; nothing overflows and no step is skipped. Gradient norms at the optimizer are 1e-5
of what they should be.

## Why it happens
`scaler.step` divides by the scale unless `scaler.unscale_` was called before. It cannot know of a division that a
helper makes on `.grad`.

## Fix
```diff
- for p in model.parameters():
-     p.grad.mul_(1.0 / scaler.get_scale())
+ scaler.unscale_(optimizer)
  scaler.step(optimizer)
```

## What would refute it
The factor that was applied by hand is not one over the scale (for instance one over the number of ranks).

## Source
[accelerate #115](https://github.com/huggingface/accelerate/pull/115)
"""

from __future__ import annotations

from ampscope.diagnose.calls import Call
from ampscope.diagnose.census import censuses
from ampscope.diagnose.families import UNDERFLOW
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.lineage import functional
from ampscope.diagnose.opflow import Op, SegmentOps
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, pow2, sci
from ampscope.diagnose.windows import Window

DIFF = "- p.grad.mul_(1.0 / scaler.get_scale())\n+ scaler.unscale_(optimizer)"


@rule(
    "AMP106",
    "double-unscale",
    "critical",
    needs=("calls",),
    explains=("AMP101", *(c for c in UNDERFLOW if c != "AMP301")),
)
def double_unscale(rule: Rule, s: Signals) -> Found:
    """An edit of the gradients by 1/scale in a window that the scaler unscales as well."""
    wrong: list[tuple[Window, Call]] = []
    for window in s.windows:
        edit = window.hand_unscale(s.policy)
        if (
            edit is not None
            and edit.place not in s.fixed_norms
            and (window.via_scaler or window.unscaled is not None)
        ):
            wrong.append((window, edit))
    if not wrong:
        yield from _within_backward(rule, s)
    for _, pairs in by_place(wrong, lambda pair: pair[1]):
        window, edit = pairs[0]
        yield rule.finding(
            at([e for _, e in pairs]),
            f"Between backward and this line the gradients were multiplied by {sci(edit.value)}, which is one over "
            f"the loss scale {pow2(window.scale)}, and scaler.step divides by it again (seen in "
            f"{count(len(pairs), 'sampled step')}): updates are {pow2(window.scale)} times too small.",
            "Use `scaler.unscale_(optimizer)` instead of dividing by hand.",
            evidence=(
                s.measure(
                    "factor applied by hand", "SELECT median(value) FROM calls WHERE call = 'grad_edit'"
                ),
                s.measure("loss scale", "SELECT median(value) FROM calls WHERE call = 'scaler.step'"),
                s.measure(
                    "largest update relative to its weight",
                    "SELECT max(update_norm / weight_norm) FROM updates WHERE weight_norm > 0",
                ),
            ),
            falsifier="The factor does not follow the loss scale when that changes.",
            change=Change(diff=DIFF),
        )


def _within_backward(rule: Rule, s: Signals) -> Found:
    """A hook that divides the gradients by the scale while backward runs: no later look at `.grad` can notice it."""
    wrong: dict[tuple[str | None, int | None], list[tuple[SegmentOps, Op, float]]] = {}
    for flow in (c.flow for c in censuses(s)):
        scale = s.loss_scales.get((flow.rank, flow.proc, flow.segment))
        if scale is None or scale < s.policy.scale_matters:
            continue
        checked = {i for op in flow.ops if "non_finite_check_and_unscale" in op.op for i in op.ins}
        for op in flow.ops:
            if op.backward and _divides_by(op, scale, s.policy.same_factor) and checked.intersection(op.outs):
                wrong.setdefault((op.file, op.line), []).append((flow, op, scale))
    for seen in wrong.values():
        _, op, scale = seen[0]
        steps = [flow.step for flow, _, _ in seen]
        yield rule.finding(
            Where(op=f"aten::{op.op}", file=op.file, line=op.line, steps=(min(steps), max(steps))),
            f"A hook divides gradients by the loss scale {pow2(scale)} while backward runs ({functional(op)} on line "
            f"{op.line}, {count(len(seen), 'gradient')} in {count(len(set(steps)), 'sampled step')}), and "
            f"scaler.step divides by it again: updates are {pow2(scale)} times too small.",
            "Take the division out of the hook: the scaler unscales, or `scaler.unscale_(optimizer)` does.",
            evidence=(
                s.measure("loss scale", "SELECT median(value) FROM calls WHERE call = 'scaler.step'"),
                s.measure(
                    "largest update relative to its weight",
                    "SELECT max(update_norm / weight_norm) FROM updates WHERE weight_norm > 0",
                ),
            ),
            falsifier="The divisor does not follow the loss scale when that changes.",
            change=Change(diff="- p.grad.div_(scaler.get_scale())"),
        )


def _divides_by(op: Op, scale: float, spread: float) -> bool:
    """It multiplies by one over the scale, a number that Python gave."""
    name = functional(op)
    factors = [1.0 / v for v in op.scalars if v] if name in ("div", "_foreach_div") else []
    if name in ("mul", "_foreach_mul"):
        factors = list(op.scalars)
    return any(1.0 / spread <= f * scale <= spread for f in factors)
