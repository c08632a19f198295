"""A GradScaler scales the loss of a model whose low-precision work is all in bfloat16.

## How it shows
It works on the CPU and does nothing useful; with bfloat16 parameters on CUDA it raises
`"_amp_foreach_non_finite_check_and_unscale_cuda" not implemented for 'BFloat16'`.

## Why it happens
Loss scaling moves gradients into the narrow range of fp16. bfloat16 has the exponent range of float32, so nothing
underflows that would not underflow there, and a scaled loss only comes closer to overflow.

## Fix
```diff
- scaler = torch.amp.GradScaler()
+ scaler = torch.amp.GradScaler(enabled=dtype == torch.float16)
```

## What would refute it
Some op of the training runs in fp16 after all.

## Source
[pytorch #127176](https://github.com/pytorch/pytorch/issues/127176)
"""

from __future__ import annotations

from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals


@rule("AMP114", "scaler-with-bf16", "warning", needs=("steps", "calls"))
def scaler_with_bf16(rule: Rule, s: Signals) -> Found:
    """An enabled scaler, bfloat16 in training and no fp16 anywhere."""
    used = s.training_dtypes
    if not s.scaler_used or "bfloat16" not in used or "float16" in used or s.half_ops("float16"):
        return
    init = s.first_call("scaler.init") or s.first_call("scaler.scale")
    yield rule.finding(
        Where(
            file=init.file if init else None,
            line=init.line if init else None,
            steps=(int(s.steps["step"].min()), int(s.steps["step"].max())),
        ),
        "A GradScaler is enabled while all low-precision work runs in bfloat16, which needs no loss scaling.",
        "Drop the scaler, or enable it for fp16 only: GradScaler(enabled=dtype == torch.float16).",
        evidence=(
            s.measure(
                "steps with a loss scale", "SELECT count(*) FROM steps WHERE scale IS NOT NULL", "steps"
            ),
            s.measure(
                "steps under bfloat16 autocast",
                "SELECT count(*) FROM steps WHERE autocast_dtype = 'bfloat16'",
                "steps",
            ),
            s.measure(
                "ops with fp16 outputs",
                "SELECT count(*) FROM ops WHERE list_contains(out_dtypes, 'float16')",
                "ops",
            ),
        ),
        falsifier="Some op of the training runs in fp16.",
        change=Change(set={"scaler.enabled": "false"}, diff="+ enabled=dtype == torch.float16"),
    )
