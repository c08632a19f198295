"""The GPU has low-precision matrix units and every matrix product runs in float32.

## How it shows
Training works and is slower than it needs to be: no autocast, or autocast that never reaches the work.

## Why it happens
Tensor cores compute fp16 and bf16 products several times faster than float32, and half-precision activations take
half the memory. PyTorch uses them only when asked, by autocast or by the dtype of the tensors.

## Fix
```diff
+ with torch.autocast("cuda", dtype=torch.bfloat16):
      loss = criterion(model(x), y)
```
Without bfloat16 (V100, T4, RTX 20): `dtype=torch.float16` and a `torch.amp.GradScaler`.

## What would refute it
The step time does not fall with autocast: then the run is bound by something else (input, launches, memory).

## Source
[torch.amp](https://docs.pytorch.org/docs/stable/amp.html)
"""

from __future__ import annotations

from ampscope.diagnose.finding import Abstain, Change, Where
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import percent


@rule("AMP601", "amp-inactive", "warning", needs=("ops",))
def amp_inactive(rule: Rule, s: Signals) -> Found:
    """All matmul work of the censuses in float32, on a CUDA device of capability 7.0 or more."""
    gpu = next((d for p in s.info.processes for d in p.devices if d.type == "cuda"), None)
    if gpu is None:
        yield Abstain("no CUDA device in this run")
        return
    if s.device != "cuda":
        yield Abstain("the training ran on another device than the GPU")
        return
    if float(gpu.capability or "0") < s.policy.tensor_core_capability:
        return
    work = "FROM ops WHERE flops > 0 AND device = 'cuda'"
    full = "len(out_dtypes) > 0 AND out_dtypes[1] = 'float32'"
    share = s.measure(
        "share of matmul work in float32", f"SELECT sum(flops) FILTER ({full}) / sum(flops) {work}"
    )
    if share is None or not isinstance(share.value, float) or share.value < s.policy.idle_matmul_share:
        return
    dtype = "bfloat16" if s.bf16_native else "float16"
    scaler = "" if s.bf16_native else " and a torch.amp.GradScaler"
    yield rule.finding(
        Where(steps=(int(s.steps["step"].min()), int(s.steps["step"].max()))),
        f"{percent(share.value)} of the matmul work runs in float32 on {gpu.name}, whose matrix units stand idle.",
        f"Run the forward under torch.autocast('cuda', dtype=torch.{dtype}){scaler}.",
        evidence=(
            share,
            s.measure("matmul work", f"SELECT sum(flops) {work}", "operations"),
        ),
        falsifier="The step time does not fall with autocast.",
        change=Change(diff=f"+ with torch.autocast('cuda', dtype=torch.{dtype}):"),
    )
