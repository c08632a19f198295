"""A custom `autograd.Function` without `custom_fwd` and `custom_bwd` meets two dtypes in its backward.

## How it shows
The forward works under autocast; backward raises `expected m1 and m2 to have the same dtype, but got: Half != float`.

## Why it happens
Inside `forward`, autocast casts the operands of each op, but `save_for_backward` keeps the tensors as they came:
float32. The incoming gradient is half, like the output. `backward` runs without autocast, and the two meet.

## Fix
```diff
  class MyFunction(torch.autograd.Function):
      @staticmethod
+     @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
      def forward(ctx, x, weight): ...

      @staticmethod
+     @torch.amp.custom_bwd(device_type="cuda")
      def backward(ctx, grad): ...
```

## What would refute it
The error is raised outside of the Function's backward.

## Source
[torch.amp examples: autocast and custom autograd functions](https://docs.pytorch.org/docs/stable/notes/amp_examples.html#autocast-and-custom-autograd-functions)
"""

from __future__ import annotations

from ampscope.diagnose.dtypes import ending, in_custom_backward, mismatch
from ampscope.diagnose.families import CRASHED
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals


@rule("AMP123", "custom-function-dtype", "critical", explains=("AMP118", "AMP121", *CRASHED))
def custom_function_dtype(rule: Rule, s: Signals) -> Found:
    """The run ended with a dtype error inside the backward of a Function of the user's."""
    end = ending(s)
    if end is None or not mismatch(end.message) or not in_custom_backward(end):
        return
    device = s.device
    yield rule.finding(
        Where(file=end.file, line=end.line, op=None, steps=(end.step, end.step)),
        f"The backward of a custom autograd.Function met two dtypes: {end.message}.",
        "Decorate forward with torch.amp.custom_fwd (with cast_inputs) and backward with torch.amp.custom_bwd.",
        evidence=(
            s.measure("exception", "SELECT last(message ORDER BY t) FROM events WHERE event = 'exception'"),
            s.measure("autocast at the forward", "SELECT max(autocast_dtype) FROM steps"),
        ),
        falsifier="The error is raised outside of the Function's backward.",
        change=Change(
            diff=f'+ @torch.amp.custom_fwd(device_type="{device}", cast_inputs=torch.float16)\n'
            f'+ @torch.amp.custom_bwd(device_type="{device}")'
        ),
    )
