"""The loss is scaled, but the optimizer steps on its own: the gradients are never divided by the loss scale.

## How it shows
The loss explodes, or turns NaN, within a few steps, at a learning rate that is known to be fine in float32.
With Adam it may only train badly, because the scale cancels in m/sqrt(v) and nothing checks for inf.

## Why it happens
`scaler.scale(loss).backward()` makes gradients `scale` times too large on purpose. Only `scaler.unscale_` and
`scaler.step` divide them again, and only `scaler.step` leaves the weights alone when one of them overflowed.

## Fix
```diff
  scaler.scale(loss).backward()
- optimizer.step()
+ scaler.step(optimizer)
+ scaler.update()
```

## What would refute it
The gradients are divided by the scale somewhere between backward and step.

## Source
[torch.amp examples: typical mixed precision training](https://docs.pytorch.org/docs/stable/notes/amp_examples.html);
[nerfacc #307](https://github.com/nerfstudio-project/nerfacc/issues/307)
"""

from __future__ import annotations

from ampscope.diagnose.families import CRASHED, FORWARD_OVERFLOW, RUINED
from ampscope.diagnose.finding import Change
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, pow2
from ampscope.diagnose.windows import Window


@rule(
    "AMP105",
    "scaled-gradients-plain-step",
    "critical",
    needs=("calls",),
    explains=("AMP104", "AMP115", *RUINED, *CRASHED),
    later=FORWARD_OVERFLOW,
)
def scaled_gradients_plain_step(rule: Rule, s: Signals) -> Found:
    """optimizer.step() outside scaler.step while the gradients carry a scale large enough to matter."""
    wrong = [(w, w.step) for w in s.windows if w.step is not None and _plain_and_scaled(s, w)]
    for _, pairs in by_place(wrong, lambda pair: pair[1]):
        window, step = pairs[0]
        yield rule.finding(
            at([c for _, c in pairs]),
            f"{step.object} stepped {count(len(pairs), 'time')} on gradients that were still multiplied by the "
            f"loss scale {pow2(window.scale)}: its updates are that much too large, and steps with inf or NaN "
            "gradients are taken as well.",
            "Step through the scaler: `scaler.step(optimizer)`, then `scaler.update()`.",
            evidence=(
                s.measure(
                    "plain steps on scaled gradients",
                    "SELECT count(*) FROM calls WHERE call = 'optimizer.step' AND scaled IN ('scaled', 'mixed') "
                    "AND coalesce(detail, '') NOT LIKE '%via_scaler%'",
                    "steps",
                ),
                s.measure(
                    "scaler.step calls", "SELECT count(*) FROM calls WHERE call = 'scaler.step'", "calls"
                ),
                s.measure("loss scale", "SELECT max(value) FROM calls WHERE call = 'scaler.scale'"),
            ),
            falsifier="The gradients are divided by the scale by hand between backward and step.",
            change=Change(diff="- optimizer.step()\n+ scaler.step(optimizer)\n+ scaler.update()"),
        )


def _plain_and_scaled(s: Signals, window: Window) -> bool:
    step = window.step
    return (
        step is not None
        and not window.via_scaler
        and step.scaled in ("scaled", "mixed")
        and window.unscaled is None
        and (window.scale or 1.0) >= s.policy.scale_matters
        and window.opt not in s.hand_unscaled
    )
