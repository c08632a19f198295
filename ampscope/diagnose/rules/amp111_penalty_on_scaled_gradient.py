"""A gradient penalty is computed from gradients that are still multiplied by the loss scale.

## How it shows
The penalty term dominates, or explodes, and changes with every change of the loss scale.

## Why it happens
`torch.autograd.grad(scaler.scale(loss), params, create_graph=True)` returns gradients times the scale. Their norm
enters the loss as a number that is `scale` (or its square) times too large.

## Fix
```diff
  scaled = torch.autograd.grad(scaler.scale(loss), params, create_graph=True)
- penalty = sum(g.pow(2).sum() for g in scaled)
+ grads = [g * (1.0 / scaler.get_scale()) for g in scaled]
+ penalty = sum(g.pow(2).sum() for g in grads)
```

## What would refute it
The gradients are divided by the scale before the penalty is formed.

## Source
[torch.amp examples: gradient penalty](https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-penalty)
"""

from __future__ import annotations

from ampscope.diagnose.families import FORWARD_OVERFLOW, RUINED, SKIPPING
from ampscope.diagnose.finding import Change
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count


@rule(
    "AMP111",
    "penalty-on-scaled-gradient",
    "critical",
    needs=("calls",),
    explains=("AMP302", *SKIPPING, *RUINED),
    later=tuple(c for c in FORWARD_OVERFLOW if c != "AMP302"),
)
def penalty_on_scaled_gradient(rule: Rule, s: Signals) -> Found:
    """Gradients of a scaled output that reach a backward root with no division by the scale on the way."""
    wrong = [c for c in s.calls if c.call == "backward" and c.has("penalty_on_scaled")]
    for _, calls in by_place(wrong, lambda c: c):
        yield rule.finding(
            at(calls),
            f"In {count(len(calls), 'backward')} the loss contains gradients of a scaled output "
            "(autograd.grad with create_graph) that were never divided by the loss scale: the penalty is that much "
            "too large and changes with the scale.",
            "Multiply the gradients by 1/scaler.get_scale() before forming the penalty.",
            evidence=(
                s.measure(
                    "backward calls with a penalty on scaled gradients",
                    "SELECT count(*) FROM calls WHERE call = 'backward' AND detail LIKE '%penalty_on_scaled%'",
                    "calls",
                ),
                s.measure(
                    "autograd.grad calls on scaled outputs",
                    "SELECT count(*) FROM calls WHERE call = 'autograd.grad' AND scaled IN ('scaled', 'mixed')",
                    "calls",
                ),
                s.measure("loss scale", "SELECT median(value) FROM calls WHERE call = 'scaler.scale'"),
            ),
            falsifier="The gradients are divided by the scale before the penalty.",
            change=Change(diff="+ grads = [g * (1.0 / scaler.get_scale()) for g in scaled_grads]"),
        )
