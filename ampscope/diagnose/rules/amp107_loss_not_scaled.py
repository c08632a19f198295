"""A loss is back-propagated without `scaler.scale`, and the scaler divides its gradients by the scale all the same.

## How it shows
What only that loss trains (an auxiliary head, a regulariser) stays flat, while the rest learns. The same happens to a
term whose gradient is taken with `torch.autograd.grad` and added to `.grad` by hand. When no loss is scaled at all,
nothing learns: every update is `scale` times too small. Where `scale` was never called, the scaler says so:
`Attempted step but _scale is None`.

## Why it happens
`scaler.step(optimizer)` divides all gradients of the optimizer by the scale. Those that were never multiplied by it
come out at 1/65536 of their size, and in fp16 they had no protection from underflow either.

## Fix
```diff
- scaler.scale(main_loss).backward()
- aux_loss.backward()
+ scaler.scale(main_loss + aux_loss).backward()
```
Or scale each one: `scaler.scale(aux_loss).backward()`.

## What would refute it
The loss was multiplied by the scale by hand, or it is added after `unscale_` on purpose.

## Source
[torch.amp examples: multiple losses](https://docs.pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers);
[stable-dreamfusion #158](https://github.com/ashawkey/stable-dreamfusion/issues/158)
"""

from __future__ import annotations

from collections.abc import Iterator

from ampscope.diagnose.calls import Call
from ampscope.diagnose.census import censuses
from ampscope.diagnose.families import CRASHED, UNDERFLOW
from ampscope.diagnose.finding import Change, Finding, Where
from ampscope.diagnose.lineage import functional
from ampscope.diagnose.opflow import Op, SegmentOps
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, listed, pow2
from ampscope.diagnose.windows import Window


@rule("AMP107", "loss-not-scaled", "critical", needs=("calls",), explains=(*UNDERFLOW, *CRASHED))
def loss_not_scaled(rule: Rule, s: Signals) -> Found:
    """A backward root found unscaled or mixed whose gradients the scaler divides."""
    yield from _backwards(rule, s)
    yield from _added_by_hand(rule, s)


def _backwards(rule: Rule, s: Signals) -> Iterator[Finding]:
    wrong = [(w, b) for w in s.windows for b in _unscaled_backwards(s, w)]
    for _, pairs in by_place(wrong, lambda pair: pair[1]):
        window, backward = pairs[0]
        alone = all(b.scaled == "unscaled" for b in window.backwards)
        kind = "Part of a loss" if backward.scaled == "mixed" else "A loss"
        fed = f", which feeds {listed(backward.params)}," if backward.params else ""
        what = "its updates are" if alone else "the updates from it are"
        yield rule.finding(
            at([b for _, b in pairs], tensor=backward.params[0] if backward.params else None),
            f"{kind} was back-propagated without scaler.scale() in {count(len(pairs), 'step')}{fed} and "
            f"scaler.step divides its gradients by {pow2(window.scale)} all the same: {what} that much too small.",
            "Scale every loss of that optimizer: `scaler.scale(loss).backward()`.",
            evidence=(
                s.measure(
                    "backward calls on unscaled or mixed roots",
                    "SELECT count(*) FROM calls WHERE call = 'backward' AND scaled IN ('unscaled', 'mixed')",
                    "calls",
                ),
                s.measure(
                    "backward calls on scaled roots",
                    "SELECT count(*) FROM calls WHERE call = 'backward' AND scaled = 'scaled'",
                    "calls",
                ),
                s.measure("loss scale", "SELECT median(value) FROM calls WHERE call = 'scaler.step'"),
            ),
            falsifier="The loss is multiplied by the loss scale by hand on the way.",
            change=Change(diff="- loss.backward()\n+ scaler.scale(loss).backward()"),
        )


def _unscaled_backwards(s: Signals, window: Window) -> list[Call]:
    """The live backwards on roots that do not carry the scale, before an explicit unscale_ of the window."""
    if (window.scale or 1.0) < s.policy.scale_matters or not (window.via_scaler or window.unscaled):
        return []
    if window.opt in s.hand_unscaled:
        return []
    end = window.unscaled.index if window.unscaled is not None else None
    return [
        b for b in window.backwards if b.scaled in ("unscaled", "mixed") and (end is None or b.index < end)
    ]


def _added_by_hand(rule: Rule, s: Signals) -> Iterator[Finding]:
    """Results of `autograd.grad` on an unscaled root, added to gradients that the scaler divides afterwards."""
    plain: dict[tuple[int, int, int], set[tuple[str | None, int | None]]] = {}
    for c in s.calls:
        if c.call == "autograd.grad" and c.scaled == "unscaled" and c.error is None:
            plain.setdefault((c.rank, c.proc, c.segment), set()).add(c.place)
    wrong: dict[tuple[str | None, int | None], list[tuple[SegmentOps, Op, float]]] = {}
    for flow in (c.flow for c in censuses(s)) if plain else ():
        key = (flow.rank, flow.proc, flow.segment)
        scale = s.loss_scales.get(key, 1.0)
        if key in plain and scale >= s.policy.scale_matters:
            for op in _joins(flow, plain[key], scale):
                wrong.setdefault((op.file, op.line), []).append((flow, op, scale))
    for seen in wrong.values():
        _, op, scale = seen[0]
        steps = [flow.step for flow, _, _ in seen]
        yield rule.finding(
            Where(op=f"aten::{op.op}", file=op.file, line=op.line, steps=(min(steps), max(steps))),
            f"Gradients that autograd.grad took of an unscaled loss are added here to gradients that carry the loss "
            f"scale {pow2(scale)} (seen in {count(len(set(steps)), 'sampled step')}), and the scaler divides the sum "
            f"by it: that loss counts {pow2(scale)} times too little.",
            "Take the gradients of `scaler.scale(loss)`, or add them after `scaler.unscale_(optimizer)`.",
            evidence=(
                s.measure(
                    "autograd.grad calls on unscaled roots",
                    "SELECT count(*) FROM calls WHERE call = 'autograd.grad' AND scaled = 'unscaled'",
                    "calls",
                ),
                s.measure("loss scale", "SELECT median(value) FROM calls WHERE call = 'scaler.step'"),
            ),
            falsifier="The added gradients are multiplied by the loss scale on the way.",
            change=Change(
                diff="- torch.autograd.grad(loss, params)\n+ torch.autograd.grad(scaler.scale(loss), params)"
            ),
        )


def _joins(flow: SegmentOps, places: set[tuple[str | None, int | None]], scale: float) -> Iterator[Op]:
    """The additions, before the inf check, of what such a backward gave to what another backward gave."""
    unscaled: set[int] = set()
    inside = False
    for op in flow.ops:
        if op.backward:
            if inside:
                unscaled.add(op.seq)
        else:
            inside = op.op == "ones_like" and (op.file, op.line) in places
    checks = [op for op in flow.ops if "non_finite_check_and_unscale" in op.op]
    for op in flow.ops:
        if op.phase != "other" or functional(op) not in ("add", "_foreach_add", "sub", "_foreach_sub"):
            continue
        checked = {i for check in checks if check.seq > op.seq for i in check.ins}
        if not checked.intersection(op.outs) or any(abs(v) >= 0.5 * scale for v in op.scalars):
            continue
        from_unscaled = [
            any(source.seq in unscaled for source in flow.sources(op, place)) for place in range(len(op.ins))
        ]
        from_other = [
            any(source.backward and source.seq not in unscaled for source in flow.sources(op, place))
            for place in range(len(op.ins))
        ]
        if any(from_unscaled) and any(from_other):
            yield op
