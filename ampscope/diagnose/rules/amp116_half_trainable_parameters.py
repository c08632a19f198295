"""Trainable parameters are stored in fp16 under a GradScaler, which refuses to unscale their gradients.

## How it shows
`ValueError: Attempting to unscale FP16 gradients.`, at the first `unscale_` or `scaler.step`.

## Why it happens
Gradients have the dtype of their parameter. Dividing fp16 gradients by the scale would flush the small ones to zero
again, so GradScaler refuses. Frozen fp16 parameters have no gradients and are fine; often only an adapter or one
layer was made half along with a backbone.

## Fix
```diff
  backbone.requires_grad_(False).half()
- model.adapter.half()
+ model.adapter.float()    # autocast casts it for the forward
```

## What would refute it
Every parameter that the optimizer holds is float32.

## Source
[LLaVA #363](https://github.com/haotian-liu/LLaVA/issues/363)
"""

from __future__ import annotations

from ampscope.diagnose.families import CRASHED
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.places import at
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, listed

_MESSAGE = "unscale FP16 gradients"


@rule(
    "AMP116",
    "half-trainable-parameters",
    "critical",
    needs=("calls",),
    explains=("AMP115", "AMP121", *CRASHED),
)
def half_trainable_parameters(rule: Rule, s: Signals) -> Found:
    """GradScaler raised because an optimizer holds trainable fp16 parameters."""
    raised = [
        c for c in s.calls if c.call in ("scaler.step", "scaler.unscale_") and _MESSAGE in (c.message or "")
    ]
    if not raised:
        return
    held = s.params[s.params["owner"].eq(raised[0].target or "") & s.params["dtype"].eq("float16")]
    names = list(dict.fromkeys(held[held["requires_grad"].fillna(True).astype(bool)]["name"].astype(str)))
    modules = list(dict.fromkeys(n.rpartition(".")[0] for n in names))
    place = at(raised)
    which = f": {listed(names)}" if names else ""
    yield rule.finding(
        Where(
            module=modules[0] if modules and modules[0] else None,
            tensor=names[0] if names else None,
            file=place.file,
            line=place.line,
            steps=place.steps,
        ),
        f"{raised[0].target} holds {count(len(names), 'trainable fp16 parameter') if names else 'fp16 parameters'}"
        f"{which}; GradScaler does not unscale fp16 gradients and raised {raised[0].error}.",
        "Keep trainable parameters in float32 and let autocast cast them for the forward.",
        evidence=(
            s.measure(
                "trainable fp16 parameters",
                "SELECT count(DISTINCT name) FROM params WHERE dtype = 'float16' AND requires_grad AND "
                "owner IS NOT NULL",
                "parameters",
            ),
            s.measure(
                "scaler calls that raised",
                "SELECT count(*) FROM calls WHERE call LIKE 'scaler.%' AND message LIKE '%unscale FP16%'",
                "calls",
            ),
        ),
        falsifier="Every parameter that the optimizer holds is float32.",
        change=Change(
            diff=f"- {modules[0] or 'model'}.half()\n+ {modules[0] or 'model'}.float()" if modules else ""
        ),
    )
